// Unix sockets, and sequential packets with descriptors. No function blocks.

#ifndef DATASETD_SERVER_ATTACH_SEQPACKET_H_
#define DATASETD_SERVER_ATTACH_SEQPACKET_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"

namespace datasetd {

// For errors of clients.
inline constexpr char kNoDescriptorLeft[] =
    "the daemon has no file descriptor left: raise its limit, LimitNOFILE= of "
    "its unit or ulimit -n";

// Returns a listening socket of `type` (SOCK_SEQPACKET, SOCK_STREAM) at `path`,
// replacing a stale file. The caller ensures that no other daemon uses the
// path.
//   INVALID_ARGUMENT     the path is too long for a socket
//   FAILED_PRECONDITION  the existing file is not a socket
//
// `prepare` is called, if it is given, when the file is there and nobody can
// connect yet; its error is returned.
absl::StatusOr<FileDescriptor> ListenUnix(
    const std::string& path, int type,
    const std::function<absl::Status()>& prepare = nullptr);

// False if the peer does not take the message. REQUIRES: at most
// attach::kMaxDescriptors descriptors, which the caller keeps.
bool SendSeqpacket(int fd, const void* data, size_t size_bytes,
                   absl::Span<const int> descriptors = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_SEQPACKET_H_
