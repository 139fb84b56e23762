// A proxy between clients and gRPC: accepts connections, identifies their
// users, and forwards bytes within the limits of the connection (rpc_leash.h)
// and of the user.
//
// It always accepts: a connection above its user's share, or for which there is
// no descriptor, is accepted and closed. A connection is passed to gRPC once
// its client speaks HTTP/2, and is closed if it exceeds its limits. Users take
// turns, and so do the connections of each; a turn moves at most 64 KiB. A user
// who abandons calls faster than they can be cleaned up, or reconnects too
// often, must wait.
//
// One thread, which never blocks on a connection and buffers no bytes for a
// client that does not read.

#ifndef DATASETD_SERVER_RPC_RPC_GATE_H_
#define DATASETD_SERVER_RPC_RPC_GATE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "server/rpc/peer_table.h"
#include "server/rpc/rpc_relay.h"
#include "server/rpc/rpc_user.h"

namespace datasetd {

class RpcGate {
 public:
  struct Options {
    int max_connections = 0;
    int max_connections_per_user = 0;
    // A client whose connection had no call for this long is asked to close it,
    // which it does at its next read. If it does not, the connection is closed
    // after the same time again, at least 30 s.
    absl::Duration idle_timeout;
  };
  struct Counters {
    std::atomic<uint64_t> num_connections = 0;  // current
    std::atomic<uint64_t> num_refused = 0;      // above a share
    std::atomic<uint64_t> num_abusive = 0;
    std::atomic<uint64_t> num_expired = 0;  // idle, silent or not reading
  };
  // Passes gRPC's end of a connection to gRPC.
  using Serve = std::function<void(FileDescriptor connection)>;
  // For the log: called at most once a minute per user and event.
  using Observer = std::function<void(const char* event, uint32_t uid,
                                      int32_t pid, const std::string& detail)>;

  // `listener` is a non-blocking Unix stream socket. `peers`, which receives
  // each connection's user, and `clock` outlive the gate.
  static absl::StatusOr<std::unique_ptr<RpcGate>> Start(
      FileDescriptor listener, const Options& options, PeerTable* peers,
      const Clock* clock, Serve serve, Observer observer);

  // Forwards gRPC's pending responses and closes all connections.
  ~RpcGate();

  // Passes no more connections to gRPC once this returns.
  void CloseDoor();

  const Counters& counters() const { return counters_; }

 private:
  using Side = RpcRelay::Side;
  using Result = RpcRelay::Result;
  RpcGate(FileDescriptor listener, FileDescriptor epoll, FileDescriptor wake,
          const Options& options, PeerTable* peers, const Clock* clock,
          Serve serve, Observer observer);
  bool Watch(int fd, uint64_t key, uint32_t events, int operation);
  void Wake();

  void Run();
  void OnEvent(uint64_t key, uint32_t events);
  int TimeoutMilliseconds() const;
  void Tick();

  // False if no client is waiting.
  bool Accept();
  // Accepts a connection with the spare descriptor and closes it.
  void TurnAway();
  void Listen(bool listen);

  void TakeTurn();
  void Enqueue(uint64_t id, RpcRelay& relay);
  // Runs one turn of a connection; true if it wants another.
  bool Run(uint64_t id, RpcRelay& relay, RpcUser& user);
  bool Admit(uint64_t id, RpcRelay& relay, RpcUser& user);
  // True if there may be more to move.
  bool Move(uint64_t id, RpcRelay& relay, RpcUser& user, Side from);
  void Hold(uint64_t id, RpcRelay& relay, RpcUser& user);
  // Gives held connections a turn, if new calls may be forwarded.
  void Unhold(RpcUser& user);
  void EndExemption(RpcUser& user);
  void LookAgain(RpcUser& user);
  void CountStreams(RpcRelay& relay, RpcUser& user);
  void Close(uint64_t id);
  void Report(RpcUser& user, const char* event, pid_t pid, const char* detail);
  // Moves the descriptor to a number that was not used recently.
  FileDescriptor MoveUp(FileDescriptor fd);

  FileDescriptor listener_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  const Options options_;
  PeerTable* const peers_;
  const Clock* const clock_;
  const Serve serve_;
  const Observer observer_;
  Counters counters_;

  Mutex mutex_;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_stopping_ = false;

  // Used by the thread only.
  FileDescriptor spare_;
  bool is_listening_ = false;
  bool is_door_open_ = true;
  absl::Duration now_;
  absl::Duration next_tick_;
  uint64_t num_accepted_ = 0;
  int lowest_descriptor_ = 0;  // of the descriptors that gRPC gets
  int next_descriptor_ = 0;
  std::map<uint64_t, std::unique_ptr<RpcRelay>> relays_;
  std::map<uint32_t, std::unique_ptr<RpcUser>> users_;
  std::deque<RpcUser*> ready_users_;
  std::vector<uint8_t> buffer_;
  std::thread thread_;
};

// Maximum number of connections, keeping half of the process's descriptors for
// other uses.
int MaxRpcConnections();

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_GATE_H_
