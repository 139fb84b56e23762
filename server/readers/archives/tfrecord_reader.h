// Files of TFRecords that hold tf.train.Example: format tfrecord.
//
// The path is a file or a pattern of them, DIR/train-{00000..00127}-of-00128.
// Lengths are checked at the start, contents when a sample is read, each
// against its CRC-32C. Files may be gzip or zlib as a whole: inflated_file.h.
//
// Option features names the fields, in their order: NAME=FEATURE:KIND, or
// FEATURE:KIND where the feature's name can be the field's:
//
//   image/encoded:image   bytes that are a JPEG, PNG or BMP: uint8 [H, W, C]
//   label:int64           one number of an int64 list, [3] after it: a vector
//   vec:float32[16]       16 of a float list
//   raw:uint8[28x28x1]    bytes: the elements, little-endian, of any dtype
//
// as "image=image/encoded:image,label=image/class/label:int64". Without the
// option the first record tells: bytes that begin an image, int64 lists and
// float lists are fields, images first, then by name, with _ in the place of
// what a name cannot hold. An example whose feature is missing, or of another
// length, is a bad sample. Options beside: those of image_options.h and
// shard_files.h. No splits. 16 bytes for each sample are held. The format
// declares no count, so a file cut off at the end of a record looks whole.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenTfrecordReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_
