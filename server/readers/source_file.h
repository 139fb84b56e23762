// Opens the file of a source whose path is one file.

#ifndef DATASETD_SERVER_READERS_SOURCE_FILE_H_
#define DATASETD_SERVER_READERS_SOURCE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file_system.h"

namespace datasetd {

//   INVALID_ARGUMENT              a directory, or empty; says what was expected
//   NOT_FOUND, PERMISSION_DENIED  as FileSystem::Open
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenSourceFile(
    const FileSystem& files, const std::string& path,
    absl::string_view expected);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SOURCE_FILE_H_
