#include "server/files/store_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "server/files/errno_status.h"
#include "server/files/posix_file.h"

namespace datasetd {
namespace {

constexpr char kLockName[] = "lock";
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

bool IsOurs(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == geteuid();
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status WriteAt(int64_t offset,
                       absl::Span<const uint8_t> data) override {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t count =
          pwrite(fd_.get(), data.data() + done, data.size() - done,
                 offset + static_cast<int64_t>(done));
      if (count < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(path_, "writing");
      }
      done += static_cast<size_t>(count);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fsync(fd_.get()) == 0 ? absl::OkStatus()
                                 : ErrnoStatus(path_, "fsync");
  }

 private:
  const FileDescriptor fd_;
  const std::string path_;
};

class PosixStoreDirectory : public StoreDirectory {
 public:
  PosixStoreDirectory(std::string path, FileDescriptor fd, FileDescriptor lock)
      : path_(std::move(path)), fd_(std::move(fd)), lock_(std::move(lock)) {}

  const std::string& path() const override { return path_; }

  absl::StatusOr<std::vector<FileInfo>> List() const override {
    FileDescriptor copy(openat(fd_.get(), ".", O_RDONLY | O_CLOEXEC));
    if (!copy.has_value()) return ErrnoStatus(path_, "opening");
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(copy.get()),
                                                     closedir);
    if (stream == nullptr) return ErrnoStatus(path_, "listing");
    (void)copy.Release();
    std::vector<FileInfo> files;
    while (true) {
      errno = 0;
      const dirent* const entry = readdir(stream.get());
      if (entry == nullptr) {
        if (errno != 0) return ErrnoStatus(path_, "listing");
        return files;
      }
      struct stat status;
      if (fstatat(fd_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ==
              0 &&
          IsOurs(status)) {
        files.push_back(FileInfoOf(entry->d_name, status));
      }
    }
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& name) const override {
    struct stat status;
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd, OpenToRead(name, &status));
    return std::make_unique<PosixFile>(std::move(fd),
                                       FileInfoOf(PathOf(name), status));
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& name) override {
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd, OpenNew(name));
    return std::make_unique<PosixWritableFile>(std::move(fd), PathOf(name));
  }

  absl::StatusOr<std::unique_ptr<MappedFile>> Map(
      const std::string& name) const override {
    struct stat status;
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd, OpenToRead(name, &status));
    if (status.st_size == 0) {
      return absl::DataLossError(absl::StrCat(PathOf(name), ": is empty"));
    }
    return MappedFile::Map(std::move(fd), PathOf(name), status.st_size,
                           /*is_writable=*/false);
  }

  absl::StatusOr<std::unique_ptr<MappedFile>> CreateMapped(
      const std::string& name, int64_t size_bytes) override {
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd, OpenNew(name));
    auto file = [&]() -> absl::StatusOr<std::unique_ptr<MappedFile>> {
      do {
        errno = posix_fallocate(fd.get(), 0, size_bytes);
      } while (errno == EINTR);
      if (errno != 0) {
        return ErrnoStatus(PathOf(name), absl::StrCat("taking ", size_bytes,
                                                      " bytes of the disk"));
      }
      return MappedFile::Map(std::move(fd), PathOf(name), size_bytes,
                             /*is_writable=*/true);
    }();
    if (!file.ok()) Remove(name).IgnoreError();
    return file;
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) != 0) {
      return ErrnoStatus(PathOf(from), absl::StrCat("renaming to ", to));
    }
    return fsync(fd_.get()) == 0 ? absl::OkStatus()
                                 : ErrnoStatus(path_, "fsync");
  }

  absl::Status Remove(const std::string& name) override {
    return unlinkat(fd_.get(), name.c_str(), 0) == 0
               ? absl::OkStatus()
               : ErrnoStatus(PathOf(name), "removing");
  }

  absl::Status Touch(const std::string& name) override {
    // The kernel's own "now" is the time of its last tick.
    timespec times[2] = {};
    if (clock_gettime(CLOCK_REALTIME, &times[1]) != 0) {
      return ErrnoStatus(PathOf(name), "reading the clock");
    }
    times[0] = times[1];
    return utimensat(fd_.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0
               ? absl::OkStatus()
               : ErrnoStatus(PathOf(name), "setting its time");
  }

  absl::StatusOr<int64_t> FreeBytes() const override {
    struct statvfs status;
    if (fstatvfs(fd_.get(), &status) != 0) {
      return ErrnoStatus(path_, "fstatvfs");
    }
    return static_cast<int64_t>(status.f_bavail * status.f_frsize);
  }

 private:
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(path_, "/", name);
  }

  absl::StatusOr<FileDescriptor> OpenToRead(const std::string& name,
                                            struct stat* status) const {
    FileDescriptor fd(openat(fd_.get(), name.c_str(),
                             O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.has_value()) {
      if (errno == EACCES || errno == EPERM) {
        // It is ours, so that the file server or a security module refuses it
        // now. What is no file of ours is PERMISSION_DENIED.
        return absl::UnavailableError(
            ErrnoStatus(PathOf(name), "opening").message());
      }
      if (errno != ELOOP) return ErrnoStatus(PathOf(name), "opening");
      return absl::PermissionDeniedError(
          absl::StrCat(PathOf(name), ": is a link"));
    }
    if (fstat(fd.get(), status) != 0) return ErrnoStatus(PathOf(name), "fstat");
    if (!IsOurs(*status)) {
      return absl::PermissionDeniedError(absl::StrCat(
          PathOf(name), ": is not a regular file of uid ", geteuid()));
    }
    return fd;
  }

  absl::StatusOr<FileDescriptor> OpenNew(const std::string& name) {
    // Do not write into a file that another process has open.
    if (unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(PathOf(name), "removing");
    }
    FileDescriptor fd(openat(fd_.get(), name.c_str(),
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.has_value()) return ErrnoStatus(PathOf(name), "creating");
    return fd;
  }

  const std::string path_;
  const FileDescriptor fd_;
  const FileDescriptor lock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreDirectory>> OpenStoreDirectory(
    const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(path,
                       "cannot be made; its parent must be there and writable "
                       "for the daemon's user");
  }
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.has_value()) return ErrnoStatus(path, "opening the directory");
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return ErrnoStatus(path, "fstat");
  if (status.st_uid != geteuid() || (status.st_mode & kOthersMayWrite) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": belongs to uid ", status.st_uid, ", mode 0",
        absl::Hex((status.st_mode >> 6 & 7) * 0x100 +
                  (status.st_mode >> 3 & 7) * 0x10 + (status.st_mode & 7)),
        "; it must belong to uid ", geteuid(),
        " and be writable by nobody else"));
  }
  FileDescriptor lock(openat(fd.get(), kLockName,
                             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.has_value()) return ErrnoStatus(path, "opening its lock");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    // ENOLCK, of network file systems without locks.
    if (errno != EWOULDBLOCK) return ErrnoStatus(path, "locking its lock");
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": another datasetd uses it; give each daemon its own"));
  }
  return std::make_unique<PosixStoreDirectory>(path, std::move(fd),
                                               std::move(lock));
}

absl::StatusOr<std::string> ReadStored(const StoreDirectory& directory,
                                       const std::string& name,
                                       int64_t max_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                            directory.Open(name));
  const int64_t size = file->info().size_bytes;
  if (size > max_bytes) {
    return absl::DataLossError(absl::StrCat(
        file->info().path, ": has ", size, " bytes, and may have ", max_bytes));
  }
  std::string data(static_cast<size_t>(size), '\0');
  DATASETD_RETURN_IF_ERROR(ReadExactly(
      *file, 0,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(data.data()), data.size())));
  return data;
}

absl::Status WriteStored(StoreDirectory& directory, const std::string& name,
                         absl::Span<const uint8_t> data) {
  const std::string temporary = absl::StrCat(name, ".tmp");
  const absl::Status status = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                              directory.Create(temporary));
    DATASETD_RETURN_IF_ERROR(file->WriteAt(0, data));
    DATASETD_RETURN_IF_ERROR(file->Sync());
    return directory.Rename(temporary, name);
  }();
  if (!status.ok()) directory.Remove(temporary).IgnoreError();
  return status;
}

}  // namespace datasetd
