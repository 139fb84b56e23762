#include "server/readers/source_file.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenSourceFile(
    const FileSystem& files, const std::string& path,
    absl::string_view expected) {
  DATASETD_ASSIGN_OR_RETURN(const FileInfo info, files.Stat(path));
  if (info.is_directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a directory, expected ", expected));
  }
  DATASETD_ASSIGN_OR_RETURN(auto file, files.Open(path));
  if (file->info().size_bytes > 0) return file;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": empty, expected ", expected));
}

}  // namespace datasetd
