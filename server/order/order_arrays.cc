#include "server/order/order_arrays.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
// A multiple of the size of every number.
constexpr int64_t kBlockBytes = 256 << 10;

absl::Status CheckDescriptor(const char* name, int64_t size_bytes, int fd) {
  // Only memfds can have these seals: a file of another kind, whose file system
  // may answer late or never, is not asked for more.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        ": its descriptor is not of a memfd that has F_SEAL_SHRINK, "
        "F_SEAL_GROW and F_SEAL_WRITE: add the seals when the memory is "
        "written and no longer mapped for writing"));
  }
  struct statfs file_system;
  if (fstatfs(fd, &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": its memfd is on huge pages: make it without MFD_HUGETLB"));
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     ": its descriptor cannot be read: open it for "
                     "reading"));
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0 || status.st_size != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": its memfd has ", status.st_size,
                     " bytes; by the feed's options it has ", size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OrderArrays::Check(
    absl::Span<const FileDescriptor> descriptors) const {
  if (descriptors.size() != arrays_.size()) {
    std::string names;
    for (const Array& array : arrays_) {
      absl::StrAppend(&names, names.empty() ? ": " : ", ", array.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", descriptors.size(),
                     " descriptors of arrays; the feed's options call for ",
                     arrays_.size(), names));
  }
  for (size_t i = 0; i < arrays_.size(); ++i) {
    DATASETD_RETURN_IF_ERROR(CheckDescriptor(
        arrays_[i].name, arrays_[i].size_bytes, descriptors[i].get()));
  }
  return absl::OkStatus();
}

absl::Status OrderArrays::Read(absl::Span<const FileDescriptor> descriptors) {
  std::vector<int64_t> block(kBlockBytes / sizeof(int64_t));
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    for (int64_t done = 0; done < array.size_bytes;) {
      if (is_cancelled_.load()) {
        return absl::CancelledError("the feed has ended");
      }
      const int64_t wanted = std::min(kBlockBytes, array.size_bytes - done);
      const ssize_t size =
          pread(descriptors[i].get(), block.data(), wanted, done);
      if (size < 0 && errno == EINTR) continue;
      if (size != wanted) {
        // Its pages were lost, or no memory is left to bring them back.
        return absl::ErrnoToStatus(size < 0 ? errno : EIO,
                                   absl::StrCat(array.name, ": reading it"));
      }
      DATASETD_RETURN_IF_ERROR(array.append(block.data(), size));
      done += size;
    }
  }
  for (const auto& check : checks_) DATASETD_RETURN_IF_ERROR(check());
  is_read_ = true;
  return absl::OkStatus();
}

}  // namespace datasetd
