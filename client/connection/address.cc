#include "client/connection/address.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/gpu_uuid.h"
#include "client/connection/guarded_fd.h"
#include "client/device/cuda_driver.h"

namespace datasetd::client {
namespace {

bool IsHostAndPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  return colon != std::string::npos && colon + 1 < text.size() &&
         text.find('/') == std::string::npos &&
         std::all_of(text.begin() + static_cast<ptrdiff_t>(colon) + 1,
                     text.end(), absl::ascii_isdigit);
}

std::string Environment(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

// Whether a daemon listens there, also if this user may not connect to it.
bool Listens(const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  memcpy(name.sun_path, path.data(), path.size());
  const GuardedFd fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name),
              sizeof(name)) == 0) {
    return true;
  }
  // EPROTOTYPE: one of an earlier version.
  return errno == EAGAIN || errno == EACCES || errno == EINPROGRESS ||
         errno == EPROTOTYPE;
}

bool IsOwnAlone(const std::string& directory) {
  struct stat status = {};
  return lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

}  // namespace

// As shared_directory() of client/python/datasetd/_daemon/start.py.
std::string SharedDirectoryPrefix() {
  constexpr size_t kMaxRuntimeBytes = 50;
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  const bool is_usable = !runtime.empty() &&
                         runtime.size() <= kMaxRuntimeBytes &&
                         IsOwnAlone(runtime);
  return absl::StrCat(is_usable ? runtime : "/tmp", "/datasetd-", geteuid(),
                      "-");
}

std::vector<std::string> FindSharedDaemons() {
  const std::filesystem::path prefix = SharedDirectoryPrefix();
  struct Found {
    bool is_of_command;
    std::filesystem::file_time_type start;
    std::string socket;
  };
  std::vector<Found> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(prefix.parent_path(), error);
  const std::filesystem::directory_iterator end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, prefix.filename().string()) ||
        !IsOwnAlone(entry->path().string())) {
      continue;
    }
    const std::string socket = (entry->path() / "datasetd.sock").string();
    std::error_code ignored;
    const auto start = std::filesystem::last_write_time(socket, ignored);
    if (ignored || !Listens(socket)) continue;
    found.push_back({absl::StartsWith(name, prefix.filename().string() + "run"),
                     start, socket});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    if (a.is_of_command != b.is_of_command) return b.is_of_command;
    return a.start > b.start;
  });
  std::vector<std::string> sockets;
  for (Found& one : found) sockets.push_back(std::move(one.socket));
  return sockets;
}

absl::StatusOr<Address> ResolveAddress(const std::string& text) {
  std::vector<std::string> found;
  std::string path = text.empty() ? Environment(kAddressVariable) : text;
  if (path.empty()) {
    path = kDefaultAddress;
    if (!Listens(path)) found = FindSharedDaemons();
    if (!found.empty()) path = found.front();
  }
  constexpr char kScheme[] = "unix:";
  if (path.compare(0, sizeof(kScheme) - 1, kScheme) == 0) {
    path = path.substr(sizeof(kScheme) - 1);
    // unix:///absolute/path means the same.
    if (path.compare(0, 3, "///") == 0) path = path.substr(2);
  } else if (path.find("://") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", path,
        "': datasetd listens on Unix sockets only; say unix:/path or /path"));
  } else if (IsHostAndPort(path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", path,
        "' looks like a host and a port: datasetd is reached by a Unix socket "
        "of this machine; say unix:/path or /path"));
  }
  if (absl::StrContains(path, kGpuPlaceholder)) {
    std::string uuid = CurrentGpuUuid();
    if (uuid.empty()) {
      absl::StatusOr<std::string> first = GpuUuid(0);
      if (!first.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "address '", path, "': ", kGpuPlaceholder,
            " stands for this process's GPU: ", first.status().message()));
      }
      uuid = *std::move(first);
    }
    path = absl::StrReplaceAll(path, {{kGpuPlaceholder, uuid}});
  }
  std::error_code error;
  const std::filesystem::path absolute =
      std::filesystem::absolute(path, error).lexically_normal();
  if (path.empty() || error || !absolute.has_filename()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", text, "' names no socket; say unix:/path or /path"));
  }
  Address address;
  address.found = std::move(found);
  address.socket_path = absolute.string();
  const std::string& socket = address.socket_path;
  if (socket.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", socket, "' has ", socket.size(),
        " characters; a Unix socket takes ", sizeof(sockaddr_un{}.sun_path) - 1,
        ": use a shorter directory"));
  }
  return address;
}

}  // namespace datasetd::client
