// Unix sockets, and whole messages with descriptors. Nothing here waits.

#ifndef DATASETD_SERVER_ATTACH_SEQPACKET_H_
#define DATASETD_SERVER_ATTACH_SEQPACKET_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"

namespace datasetd {

// A bound and listening socket of `type` (SOCK_SEQPACKET, SOCK_STREAM) at
// `path`, whose stale file is replaced: the caller makes sure that no other
// daemon uses it.
//   INVALID_ARGUMENT     the path is longer than a socket's may be
//   FAILED_PRECONDITION  what is there is no socket
absl::StatusOr<FileDescriptor> ListenUnix(const std::string& path, int type);

// False if the peer does not take it. REQUIRES: at most attach::kMaxDescriptors
// descriptors, which stay the caller's.
bool SendSeqpacket(int fd, const void* data, size_t size_bytes,
                   absl::Span<const int> descriptors = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_SEQPACKET_H_
