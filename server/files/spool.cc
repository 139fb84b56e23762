#include "server/files/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/files/errno_status.h"

namespace datasetd {
namespace {

constexpr absl::string_view kName = "spool of a push";

// For file systems without O_TMPFILE.
FileDescriptor OpenUnlinked(const std::string& directory) {
  std::string path = absl::StrCat(directory, "/spool.XXXXXX");
  FileDescriptor fd(mkostemp(path.data(), O_CLOEXEC));
  if (fd.has_value()) unlink(path.c_str());
  return fd;
}

FileDescriptor OpenIn(const std::string& directory) {
  if (directory.empty()) {
    return FileDescriptor(memfd_create("datasetd-spool", MFD_CLOEXEC));
  }
  FileDescriptor fd(
      open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.has_value() && (errno == EOPNOTSUPP || errno == EISDIR)) {
    return OpenUnlinked(directory);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spool>> SpoolSpace::Open(uid_t uid,
                                                        bool may_have_all) {
  FileDescriptor fd = OpenIn(directory_);
  if (!fd.has_value()) {
    return ErrnoStatus(
        kName, absl::StrCat("creating it in ",
                            directory_.empty() ? "memory" : directory_));
  }
  return std::make_unique<Spool>(this, std::move(fd), uid, may_have_all);
}

int64_t SpoolSpace::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

absl::Status SpoolSpace::Take(uid_t uid, bool may_have_all,
                              int64_t size_bytes) {
  MutexLock lock(&mutex_);
  int64_t& used_by_user = used_by_user_[uid];
  if (!may_have_all && size_bytes > limit_bytes_ / 2 - used_by_user) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the encoded images that this user's pushes have sent take ",
        used_by_user, " bytes, and ", size_bytes,
        " more are above half of the ", limit_bytes_,
        " bytes for all: wait until other pushes have ended, or "
        "raise ",
        key_, " of the daemon's configuration"));
  }
  if (size_bytes > limit_bytes_ - used_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the encoded images that pushes have sent take ", used_bytes_, " of ",
        limit_bytes_, " bytes, and ", size_bytes,
        " more do not fit: wait until other pushes have ended, or raise ", key_,
        " of the daemon's configuration"));
  }
  used_bytes_ += size_bytes;
  used_by_user += size_bytes;
  return absl::OkStatus();
}

void SpoolSpace::Give(uid_t uid, int64_t size_bytes) {
  MutexLock lock(&mutex_);
  used_bytes_ -= size_bytes;
  const auto used = used_by_user_.find(uid);
  if (used == used_by_user_.end()) return;
  used->second -= size_bytes;
  if (used->second == 0) used_by_user_.erase(used);
}

Spool::~Spool() {
  fd_ = FileDescriptor();
  space_.Give(uid_, taken_bytes_);
}

absl::Status Spool::Append(absl::Span<const uint8_t> data) {
  DATASETD_RETURN_IF_ERROR(
      space_.Take(uid_, may_have_all_, static_cast<int64_t>(data.size())));
  taken_bytes_ += static_cast<int64_t>(data.size());
  while (!data.empty()) {
    const ssize_t count =
        pwrite(fd_.get(), data.data(), data.size(), size_bytes_);
    if (count < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(kName, "writing");
    }
    size_bytes_ += count;
    data.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status Spool::ReadAt(int64_t offset, absl::Span<uint8_t> buffer) const {
  while (!buffer.empty()) {
    const ssize_t count =
        pread(fd_.get(), buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    // No error of a sample.
    if (count <= 0) {
      return absl::InternalError(
          absl::StrCat("spool of a push: reading at offset ", offset, ": ",
                       count == 0 ? "end of file" : strerror(errno)));
    }
    offset += count;
    buffer.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace datasetd
