#include "client/connection/address.h"

#include <stdlib.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/gpu_uuid.h"
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

}  // namespace

absl::StatusOr<Address> ResolveAddress(const std::string& text) {
  std::string path = text;
  if (path.empty()) {
    const char* const variable = getenv(kAddressVariable);
    path =
        variable != nullptr && *variable != '\0' ? variable : kDefaultAddress;
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
  address.socket_path = absolute.string();
  address.attach_socket_path =
      (absolute.parent_path() / "attach.sock").string();
  for (const std::string& socket :
       {address.socket_path, address.attach_socket_path}) {
    if (socket.size() >= sizeof(sockaddr_un{}.sun_path)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "address '", socket, "' has ", socket.size(),
          " characters; a Unix socket takes ",
          sizeof(sockaddr_un{}.sun_path) - 1, ": use a shorter directory"));
    }
  }
  return address;
}

}  // namespace datasetd::client
