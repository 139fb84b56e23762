#include "server/files/posix_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/files/errno_status.h"

namespace datasetd {

FileInfo FileInfoOf(std::string path, const struct stat& status) {
  FileInfo info;
  info.path = std::move(path);
  info.size_bytes = S_ISREG(status.st_mode) ? status.st_size : 0;
  info.mtime_nanoseconds =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  info.is_directory = S_ISDIR(status.st_mode);
  return info;
}

PosixFile::PosixFile(FileDescriptor fd, FileInfo info)
    : fd_(std::move(fd)), info_(std::move(info)) {}

absl::StatusOr<int64_t> PosixFile::ReadAt(int64_t offset,
                                          absl::Span<uint8_t> buffer) const {
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t count =
        pread(fd_.get(), buffer.data() + done, buffer.size() - done,
              offset + static_cast<int64_t>(done));
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      return absl::Status(ReadErrorCode(errno),
                          absl::StrCat(info_.path, ": reading at offset ",
                                       offset + static_cast<int64_t>(done),
                                       ": ", strerror(errno)));
    }
    done += static_cast<size_t>(count);
  }
  return static_cast<int64_t>(done);
}

}  // namespace datasetd
