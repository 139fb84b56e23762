// Format tfrecord: TFRecord files of tf.train.Example; see docs/readers.md.
//
// Record lengths are checked at open, contents when a sample is read, each
// against its CRC-32C. Files may be gzip or zlib as a whole (inflated_file.h).
// Holds 16 bytes per sample.

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
