// Reads class names from a text file, one per line.

#ifndef DATASETD_SERVER_READERS_CLASS_NAMES_H_
#define DATASETD_SERVER_READERS_CLASS_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"

namespace datasetd {

struct ClassNames {
  std::vector<std::string> names;  // empty if the file does not exist
  FileInfo file;
};

// Skips blank lines. A missing file is not an error.
//   INVALID_ARGUMENT  not exactly `num_classes` names, a name that is not
//                     printable ASCII, or a file that is too large
absl::StatusOr<ClassNames> ReadClassNames(const FileSystem& files,
                                          const std::string& path,
                                          int num_classes);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_CLASS_NAMES_H_
