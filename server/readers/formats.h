// The table of formats.

#ifndef DATASETD_SERVER_READERS_FORMATS_H_
#define DATASETD_SERVER_READERS_FORMATS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Opens the source with the reader of spec.format. `files` must outlive the
// reader.
//   INVALID_ARGUMENT  unknown format (names those there are), split or option;
//                     zero samples; wrong magic; not this format
//   NOT_FOUND, PERMISSION_DENIED, DATA_LOSS  as above
absl::StatusOr<std::unique_ptr<Reader>> OpenReader(const SourceSpec& spec,
                                                   const FileSystem& files);

// Names of all formats, sorted.
std::vector<std::string> ReaderFormats();

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FORMATS_H_
