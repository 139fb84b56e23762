// The address of a daemon.

#ifndef DATASETD_CLIENT_CONNECTION_ADDRESS_H_
#define DATASETD_CLIENT_CONNECTION_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace datasetd::client {

inline constexpr char kAddressVariable[] = "DATASETD_ADDRESS";
inline constexpr char kDefaultAddress[] = "/run/datasetd/datasetd.sock";

struct Address {
  std::string socket_path;  // absolute
  // Not empty if the address was found and not named: the sockets of all the
  // daemons of this user's jobs that listen; the first one is socket_path.
  std::vector<std::string> found;
};

// Resolves `text`: a path, or "unix:" and a path. Empty means
// $DATASETD_ADDRESS; if that is unset the system's socket, unless no daemon
// listens there and one does that this user's jobs share, which
// datasetd.load() of Python starts: then the latest of these. "{gpu}" in it is
// the UUID of the GPU that is current in this thread, or else of the first one
// that this process sees: of several daemons the one of that GPU.
//   INVALID_ARGUMENT  another scheme, a host and a port, or a path too long for
//                     a Unix socket; {gpu}, and no GPU is visible
absl::StatusOr<Address> ResolveAddress(const std::string& text);

// Returns the beginning of the paths of the directories of daemons that this
// user's jobs share: in $XDG_RUNTIME_DIR if that is this user's alone and no
// longer than a socket allows, else in /tmp. With "run" those of `datasetctl
// run --per-node` begin.
std::string SharedDirectoryPrefix();

// Returns the sockets of these daemons that listen, the latest first; those of
// `datasetctl run --per-node` come last. Leaves out directories that are not
// this user's alone.
std::vector<std::string> FindSharedDaemons();

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_ADDRESS_H_
