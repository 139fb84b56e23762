// Format tfrecord: TFRecord files of tf.train.Example.
//
// The path is a file or a pattern, DIR/train-{00000..00127}-of-00128. Record
// lengths are checked at open, contents when a sample is read, each against its
// CRC-32C. Files may be gzip or zlib as a whole (inflated_file.h).
//
// Option features lists the fields in order: NAME=FEATURE:KIND, or FEATURE:KIND
// if the feature's name is a valid field name:
//
//   image/encoded:image   the bytes of a JPEG, PNG or BMP: uint8 [H, W, C]
//   label:int64           one number of an int64 list; with [3]: a vector
//   vec:float32[16]       16 numbers of a float list
//   raw:uint8[28x28x1]    bytes: elements of any dtype, little-endian
//
// as in "image=image/encoded:image,label=image/class/label:int64". Without the
// option the fields come from the first record: bytes that start an image,
// int64 lists and float lists; images first, then by name, with invalid
// characters replaced by _. An example with a missing feature or one of another
// length is a bad sample. Also accepts the options of image_options.h and
// shard_files.h. No splits. Holds 16 bytes per sample. The format has no record
// count, so a file truncated at a record boundary is not detected.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenTfrecordReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TFRECORD_READER_H_
