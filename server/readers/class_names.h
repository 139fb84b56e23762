// Names of classes from a text file, one a line.

#ifndef DATASETD_SERVER_READERS_CLASS_NAMES_H_
#define DATASETD_SERVER_READERS_CLASS_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"

namespace datasetd {

struct ClassNames {
  std::vector<std::string> names;  // empty: there is no such file
  FileInfo file;
};

// Blank lines are left out. A file that does not exist is no error.
//   INVALID_ARGUMENT  not exactly `num_classes` names, a name that is not
//                     printable ASCII, or a file too large to be a list
absl::StatusOr<ClassNames> ReadClassNames(const FileSystem& files,
                                          const std::string& path,
                                          int num_classes);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_CLASS_NAMES_H_
