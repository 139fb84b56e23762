#include "server/files/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "server/files/errno_status.h"
#include "server/files/posix_file.h"

namespace datasetd {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
constexpr int kStatFlags = O_PATH | O_CLOEXEC;

constexpr char kAdvice[] =
    "push the samples with the client, add the directory to data_roots, or run "
    "a private daemon with `datasetctl run`";

// A path split at the root that it lies below.
struct Location {
  std::string path;                            // normalized
  int root_fd = -1;                            // owned by the file system
  std::string root;                            // normalized
  std::string relative = std::string(1, '.');  // to root_fd
};

absl::Status ErrorStatus(int error, const Location& location) {
  const std::string& path = location.path;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(
          path, ": no such file or directory, as seen by the daemon",
          // Which root is "/" does not matter.
          location.root == "/" ? "" : "; if it exists for you, ",
          location.root == "/" ? "" : kAdvice));
    case EXDEV:
    case ELOOP:
      return absl::PermissionDeniedError(absl::StrCat(
          path, ": a link or a '..' in it leads out of the data root ",
          location.root, ", as seen by the daemon; ", kAdvice));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          path, ": may not be read by the daemon's user (uid ", geteuid(),
          "), as seen by the daemon; let that user read it, push the samples "
          "with the client, or run a private daemon with `datasetctl run`"));
    case ENXIO:
    case ENODEV:
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ": a socket or device, expected a regular file, as seen by "
          "the daemon"));
    case EINVAL:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not a usable path (", strerror(error),
                       "), as seen by the daemon"));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(absl::StrCat(
          path, ": ", strerror(error),
          ", as seen by the daemon; raise its limit of open files"));
    case EAGAIN:
      return absl::UnavailableError(absl::StrCat(
          path,
          ": kept changing while it was opened, as seen by the daemon; "
          "try again"));
    default:
      return absl::Status(
          ReadErrorCode(error),
          absl::StrCat(path, ": ", strerror(error), ", as seen by the daemon"));
  }
}

// Absolute links do not leave the root "/".
uint64_t ResolveFlags(const std::string& root) {
  return (root == "/" ? RESOLVE_IN_ROOT : RESOLVE_BENEATH) |
         RESOLVE_NO_MAGICLINKS;
}

int OpenBeneath(int root_fd, const std::string& root,
                const std::string& relative, int flags) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = ResolveFlags(root);
  // EAGAIN: a rename raced with the lookup.
  for (int attempt = 0;; ++attempt) {
    const long fd =
        syscall(SYS_openat2, root_fd, relative.c_str(), &how, sizeof(how));
    if (fd >= 0) return static_cast<int>(fd);
    if (errno != EINTR && (errno != EAGAIN || attempt >= 16)) return -1;
  }
}

absl::string_view KindName(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status WrongKind(const std::string& path, mode_t mode,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", KindName(mode),
                                                 ", expected ", expected,
                                                 ", as seen by the daemon"));
}

// Removes repeated slashes and "."; keeps "..", which the kernel resolves.
absl::StatusOr<std::string> Normalize(absl::string_view path) {
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "': a path must be absolute"));
  }
  if (path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path.substr(0, path.find('\0')), "...': a path holds a NUL"));
  }
  std::string normalized;
  for (absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part != ".") absl::StrAppend(&normalized, "/", part);
  }
  return normalized.empty() ? "/" : normalized;
}

class RootedFileSystem : public FileSystem {
 public:
  struct Root {
    std::string path;
    FileDescriptor fd;
  };

  // Sorted by path length, longest first.
  explicit RootedFileSystem(std::vector<Root> roots)
      : roots_(std::move(roots)) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const override {
    DATASETD_ASSIGN_OR_RETURN(const Location location, Locate(path));
    struct stat status;
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd,
                              OpenAndStat(location, kOpenFlags, &status));
    if (!S_ISREG(status.st_mode)) {
      return WrongKind(location.path, status.st_mode, "a regular file");
    }
    return std::make_unique<PosixFile>(std::move(fd),
                                       FileInfoOf(location.path, status));
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
    DATASETD_ASSIGN_OR_RETURN(const Location location, Locate(path));
    struct stat status;
    DATASETD_RETURN_IF_ERROR(
        OpenAndStat(location, kStatFlags, &status).status());
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
      return WrongKind(location.path, status.st_mode,
                       "a regular file or a directory");
    }
    return FileInfoOf(location.path, status);
  }

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override {
    DATASETD_ASSIGN_OR_RETURN(const Location location, Locate(directory));
    struct stat status;
    DATASETD_ASSIGN_OR_RETURN(FileDescriptor fd,
                              OpenAndStat(location, kOpenFlags, &status));
    if (!S_ISDIR(status.st_mode)) {
      return WrongKind(location.path, status.st_mode, "a directory");
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(fd.get()),
                                                     closedir);
    if (stream == nullptr) return ErrorStatus(errno, location);
    (void)fd.Release();

    std::vector<FileInfo> entries;
    while (true) {
      errno = 0;
      const dirent* entry = readdir(stream.get());
      if (entry == nullptr) {
        if (errno != 0) return ErrorStatus(errno, location);
        break;
      }
      const absl::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string path =
          absl::StrCat(location.path == "/" ? "" : location.path, "/", name);
      struct stat entry_status;
      if (fstatat(dirfd(stream.get()), entry->d_name, &entry_status,
                  AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;  // removed meanwhile
        return ErrorStatus(errno, location);
      }
      if (S_ISLNK(entry_status.st_mode)) {
        Location target = location;
        target.path = path;
        target.relative = absl::StrCat(location.relative, "/", name);
        struct stat target_status;
        const absl::Status opened =
            OpenAndStat(target, kStatFlags, &target_status).status();
        if (opened.ok()) {
          entry_status = target_status;
        } else if (!IsOfPath(opened)) {
          return opened;  // it may be a directory
        }
      }
      FileInfo info = FileInfoOf(path, entry_status);
      DATASETD_RETURN_IF_ERROR(on_entry(info));
      entries.push_back(std::move(info));
    }
    std::sort(
        entries.begin(), entries.end(),
        [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
    return entries;
  }

 private:
  absl::StatusOr<Location> Locate(const std::string& path) const {
    Location location;
    DATASETD_ASSIGN_OR_RETURN(location.path, Normalize(path));
    for (const Root& root : roots_) {
      const std::string prefix =
          root.path == "/" ? "/" : absl::StrCat(root.path, "/");
      if (location.path != root.path) {
        if (!absl::StartsWith(location.path, prefix)) continue;
        location.relative = location.path.substr(prefix.size());
      }
      location.root = root.path;
      location.root_fd = root.fd.get();
      return location;
    }
    const std::string roots = absl::StrJoin(
        roots_, ", ",
        [](std::string* out, const Root& root) { out->append(root.path); });
    return absl::PermissionDeniedError(absl::StrCat(
        location.path, ": not below a data root, as seen by the daemon (",
        roots.empty() ? "it has no data_roots" : "data_roots: ", roots, "); ",
        kAdvice));
  }

  static absl::StatusOr<FileDescriptor> OpenAndStat(const Location& location,
                                                    int flags,
                                                    struct stat* status) {
    FileDescriptor fd(
        OpenBeneath(location.root_fd, location.root, location.relative, flags));
    if (!fd.has_value() || fstat(fd.get(), status) != 0) {
      return ErrorStatus(errno, location);
    }
    return fd;
  }

  const std::vector<Root> roots_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileSystem>> CreateRootedFileSystem(
    const std::vector<std::string>& roots) {
  std::vector<RootedFileSystem::Root> opened;
  for (const std::string& root : roots) {
    DATASETD_ASSIGN_OR_RETURN(const std::string path, Normalize(root));
    if (absl::StrContains(absl::StrCat(path, "/"), "/../")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data root ", root, ": holds '..'; give the path without it"));
    }
    FileDescriptor fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!fd.has_value()) {
      return absl::Status(
          absl::ErrnoToStatusCode(errno),
          absl::StrCat("data root ", path, ": ", strerror(errno),
                       "; it must be a directory that the daemon can open"));
    }
    const FileDescriptor probe(OpenBeneath(fd.get(), path, ".", kStatFlags));
    if (!probe.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "data root ", path, ": openat2: ", strerror(errno),
          "; datasetd needs Linux 5.6, and a seccomp filter that allows it"));
    }
    opened.push_back({path, std::move(fd)});
  }
  std::sort(
      opened.begin(), opened.end(),
      [](const RootedFileSystem::Root& a, const RootedFileSystem::Root& b) {
        return a.path.size() > b.path.size();
      });
  return std::make_unique<RootedFileSystem>(std::move(opened));
}

}  // namespace datasetd
