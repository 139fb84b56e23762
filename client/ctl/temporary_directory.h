// A directory in $TMPDIR, or in /tmp if that is unset or too long for the path
// of a Unix socket, that only this user can enter.

#ifndef DATASETD_CLIENT_CTL_TEMPORARY_DIRECTORY_H_
#define DATASETD_CLIENT_CTL_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace datasetd::ctl {

class TemporaryDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Create(
      const std::string& prefix = "datasetd-") {
    const char* const parent = getenv("TMPDIR");
    const bool is_usable = parent != nullptr && *parent != '\0' &&
                           strlen(parent) <= kMaxParentBytes;
    std::string path =
        absl::StrCat(is_usable ? parent : "/tmp", "/", prefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return absl::ErrnoToStatus(
          errno, absl::StrCat("no temporary directory can be made as ", path,
                              "; set TMPDIR"));
    }
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(path));
  }
  // Removes it with all that is in it.
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  // Of 107 that the path of a socket may have.
  static constexpr size_t kMaxParentBytes = 65;

  explicit TemporaryDirectory(const std::string& path) : path_(path) {}
  const std::string path_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_TEMPORARY_DIRECTORY_H_
