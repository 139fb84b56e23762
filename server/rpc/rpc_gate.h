// Stands between the clients' gRPC connections and gRPC: accepts them, knows
// whose they are, and passes their bytes on as far as their leash
// (rpc_leash.h) and their user's share allow.
//
// Nobody is left in the listening socket's queue: a connection beyond its
// user's share, or for which there is no descriptor, is accepted and closed.
// gRPC hears of a connection when its client has begun to speak HTTP/2, and of
// none that breaks its leash again. Users take turns, and so do the connections
// of each; a turn moves 64 KiB at most. A user who gives up calls faster than
// they can be forgotten, or comes back too often, has to wait.
//
// One thread; no connection makes it wait or keeps memory for bytes that its
// client does not read.

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
    // The client of a connection that had no call for so long is asked to close
    // it, and does that when it next looks; if it does not, it is closed as
    // long after, and half a minute at least.
    absl::Duration idle_timeout;
  };
  struct Counters {
    std::atomic<uint64_t> num_connections = 0;  // now
    std::atomic<uint64_t> num_refused = 0;      // beyond a share
    std::atomic<uint64_t> num_abusive = 0;
    std::atomic<uint64_t> num_expired = 0;  // idle, silent, not reading
  };
  // Takes gRPC's end of a connection.
  using Serve = std::function<void(FileDescriptor connection)>;
  // For the log: at most once a minute for a user and an event.
  using Observer = std::function<void(const char* event, uint32_t uid,
                                      int32_t pid, const std::string& detail)>;

  // `listener` is a Unix stream socket and does not block. `peers`, which gets
  // the user of each connection, and `clock` outlive the gate.
  static absl::StatusOr<std::unique_ptr<RpcGate>> Start(
      FileDescriptor listener, const Options& options, PeerTable* peers,
      const Clock* clock, Serve serve, Observer observer);

  // Passes on what gRPC has answered, and closes all connections.
  ~RpcGate();

  // Hands no more connections to gRPC, from the return of this call on.
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

  void Accept();
  // False if there is nobody to accept.
  bool AcceptOne();
  // Accepts a connection by the descriptor kept for that, and closes it.
  void TurnAway();
  void Listen(bool listen);

  void TakeTurn();
  void Enqueue(uint64_t id, RpcRelay& relay);
  // What a connection may do in one turn; true if it wants another.
  bool Run(uint64_t id, RpcRelay& relay, RpcUser& user);
  bool Admit(uint64_t id, RpcRelay& relay, RpcUser& user);
  // True if there may be more to move.
  bool Move(uint64_t id, RpcRelay& relay, RpcUser& user, Side from);
  void Hold(uint64_t id, RpcRelay& relay, RpcUser& user);
  void Unhold(RpcUser& user);
  void CountStreams(RpcRelay& relay, RpcUser& user);
  void Close(uint64_t id);
  void Expire(uint64_t id);
  void Report(RpcUser& user, const char* event, pid_t pid, const char* detail);
  // The same under a number that was not used for long.
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

  // Of the thread.
  FileDescriptor spare_;
  bool is_listening_ = false;
  bool is_door_open_ = true;
  absl::Duration now_;
  absl::Duration next_tick_;
  uint64_t num_accepted_ = 0;
  int lowest_descriptor_ = 0;  // of those that gRPC gets
  int next_descriptor_ = 0;
  std::map<uint64_t, std::unique_ptr<RpcRelay>> relays_;
  std::map<uint32_t, std::unique_ptr<RpcUser>> users_;
  std::deque<RpcUser*> ready_users_;
  std::vector<uint8_t> buffer_;
  std::thread thread_;
};

// Connections that this process has descriptors for, while it keeps half of
// them for everything else.
int MaxRpcConnections();

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_GATE_H_
