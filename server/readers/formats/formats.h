// The table of source formats.

#ifndef DATASETD_SERVER_READERS_FORMATS_FORMATS_H_
#define DATASETD_SERVER_READERS_FORMATS_FORMATS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Opens the source with the reader of spec.format().
//   INVALID_ARGUMENT  unknown format (names the valid ones), or one that the
//                     Python package reads (names its function); unknown split
//                     or option; no samples; wrong magic; not this format
// Also errors of FileSystem and RandomAccessFile.
absl::StatusOr<std::unique_ptr<Reader>> OpenReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

// The names of the formats that the daemon reads, sorted.
std::vector<std::string> ReaderFormats();

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FORMATS_FORMATS_H_
