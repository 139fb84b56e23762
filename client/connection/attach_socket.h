// A connection to the daemon's socket: packets of attach_protocol.h.
//
// Thread-compatible, except that any thread may call Send. Move-only; the
// destructor closes the connection.

#ifndef DATASETD_CLIENT_CONNECTION_ATTACH_SOCKET_H_
#define DATASETD_CLIENT_CONNECTION_ATTACH_SOCKET_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "client/connection/guarded_fd.h"
#include "proto/attach_protocol.h"

namespace datasetd::client {

// Returns a header of this protocol version.
constexpr attach::Header MakeHeader(attach::MessageType type) {
  return {attach::kMagic, attach::kProtocolVersion, type};
}

class AttachSocket {
 public:
  // A received packet. Its type is known and its size is that of the type.
  struct Packet {
    attach::MessageType type() const {
      attach::Header header;
      memcpy(&header, bytes.data(), sizeof(header));
      return header.type;
    }
    // REQUIRES: type() is T's.
    template <typename T>
    T As() const {
      T message;
      memcpy(&message, bytes.data(), sizeof(message));
      return message;
    }

    std::array<char, sizeof(attach::Goodbye)> bytes;
    std::array<GuardedFd, attach::kMaxDescriptors> descriptors;
    uint32_t num_descriptors = 0;
  };

  AttachSocket() = default;

  // UNAVAILABLE(kDaemonGone) if no daemon listens at `path` or its backlog is
  // full; FAILED_PRECONDITION(kVersionMismatch) if it is of an earlier version;
  // PERMISSION_DENIED if this user may not connect; CANCELLED if on_wait
  // returned false.
  static absl::StatusOr<AttachSocket> Connect(const std::string& path,
                                              const CallLimits& limits);

  // At most attach::kMaxDescriptors descriptors, which the caller keeps.
  template <typename T>
  absl::Status Send(const T& message,
                    absl::Span<const GuardedFd> descriptors = {}) const {
    return SendBytes(&message, sizeof(message), descriptors);
  }

  // Blocks until a packet arrives.
  //   UNAVAILABLE(kDaemonGone)               end of file
  //   DEADLINE_EXCEEDED                      no packet arrived in time
  //   FAILED_PRECONDITION(kVersionMismatch)  another protocol version
  //   CANCELLED                              on_wait returned false
  //   INTERNAL                               malformed
  // GOODBYE and Refused are returned as the errors that they describe.
  absl::StatusOr<Packet> Receive(const CallLimits& limits);

  // The error of a Refused, or of a WeightsAnswer that is one.
  absl::Status RefusedError(uint32_t status_code,
                            const char (&reason)[attach::kTextBytes]) const;

  // True if a packet or the end of file can be read. Makes one system call.
  bool HasInput() const;

  bool is_open() const { return fd_.is_valid(); }
  void Close() { fd_.Reset(); }
  const std::string& path() const { return path_; }

 private:
  AttachSocket(GuardedFd fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  absl::Status SendBytes(const void* data, size_t size,
                         absl::Span<const GuardedFd> descriptors) const;

  GuardedFd fd_;
  std::string path_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_ATTACH_SOCKET_H_
