// The address of a daemon.

#ifndef DATASETD_CLIENT_CONNECTION_ADDRESS_H_
#define DATASETD_CLIENT_CONNECTION_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace datasetd::client {

inline constexpr char kAddressVariable[] = "DATASETD_ADDRESS";
inline constexpr char kDefaultAddress[] = "/run/datasetd/datasetd.sock";

struct Address {
  std::string socket_path;         // of gRPC, absolute
  std::string attach_socket_path;  // attach.sock beside it
  // Returns the address in gRPC's syntax.
  std::string target() const { return "unix:" + socket_path; }
};

// Resolves `text`: a path, or "unix:" and a path. Empty means
// $DATASETD_ADDRESS, or if that is unset the system's socket. "{gpu}" in it is
// the UUID of the GPU that is current in this thread, or else of the first one
// that this process sees: of several daemons the one of that GPU.
//   INVALID_ARGUMENT  another scheme, a host and a port, or a path too long for
//                     a Unix socket; {gpu}, and no GPU is visible
absl::StatusOr<Address> ResolveAddress(const std::string& text);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_ADDRESS_H_
