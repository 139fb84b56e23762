// One session's gRPC connection: the daemon's end of the client's socket pair,
// and that of the socket pair to gRPC. Forwards bytes both ways within the
// connection's limits.
//
// Reads from one side only while the other has room. Keeps no more than one
// turn's bytes: of a client whose turn reached the number of calls that it may
// open. Not thread-safe.

#ifndef DATASETD_SERVER_RPC_RPC_RELAY_H_
#define DATASETD_SERVER_RPC_RPC_RELAY_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "server/rpc/rpc_leash.h"

namespace datasetd {

class RpcRelay {
 public:
  enum class Side { kClient = 0, kServer = 1 };
  enum class Result {
    kMore,          // more bytes may follow; needs another turn
    kIdle,          // waits for an event on this side, or for gRPC's end
    kBlocked,       // waits for room on the other side
    kHeld,          // the next bytes open a call, which may not be
    kClientClosed,  // the client has closed, or takes no more bytes
    kGrpcClosed,    // gRPC has closed, and all its bytes were moved
    kAbusive,       // a limit is exceeded; see reason()
  };

  RpcRelay(FileDescriptor client, uint32_t uid, pid_t pid, absl::Duration now)
      : uid(uid), pid(pid), leash_(now) {
    fds_[0] = std::move(client);
  }

  // Sets gRPC's side once the client speaks HTTP/2.
  void Connect(FileDescriptor server) { fds_[1] = std::move(server); }
  bool is_connected() const { return fds_[1].has_value(); }
  int fd(Side side) const { return fds_[Index(side)].get(); }

  enum class Preface { kPartial, kComplete, kWrong };
  // Peeks at what the client has sent; at the end of file that is partial, and
  // the socket's event tells of the end. REQUIRES: not connected.
  Preface LookForPreface() const;

  // Moves at most buffer.size() bytes; of the client's only those that open no
  // more than `max_calls` calls. REQUIRES: connected, and a buffer of the same
  // size each time.
  Result Move(Side from, int max_calls, absl::Span<uint8_t> buffer,
              absl::Duration now);

  // Sends GOAWAY with ENHANCE_YOUR_CALM, if that is possible without blocking.
  void SayEnhanceYourCalm() const;

  RpcLeash& leash() { return leash_; }
  const char* reason() const { return reason_; }
  // Time at which bytes from this side began to wait for room; infinite if none
  // wait.
  absl::Duration blocked_since(Side from) const {
    return blocked_since_[Index(from)];
  }

  const uint32_t uid;
  const pid_t pid;
  // Set by the gate.
  int num_streams = 0;  // as counted for the user
  bool is_queued = false;
  bool is_held = false;
  bool is_readable[2] = {true, true};

 private:
  static int Index(Side side) { return static_cast<int>(side); }
  Result MoveToServer(int max_calls, absl::Span<uint8_t> buffer,
                      absl::Duration now);
  Result Send(Side from, absl::Span<const uint8_t> bytes, absl::Duration now);

  FileDescriptor fds_[2];
  // Bytes read from a side that did not fit; empty unless the kernel ran out of
  // memory.
  std::string rest_[2];
  // Bytes of the client's that were read and open a call too many.
  std::string held_;
  absl::Duration blocked_since_[2] = {absl::InfiniteDuration(),
                                      absl::InfiniteDuration()};
  RpcLeash leash_;
  const char* reason_ = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_RELAY_H_
