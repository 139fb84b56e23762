// A proxy between the sessions' gRPC connections and gRPC: forwards bytes
// within the limits of the connection (rpc_leash.h) and of the user.
//
// A connection is passed to gRPC once its client speaks HTTP/2, and is closed
// if it exceeds its limits. Users take turns, and so do the connections of
// each; a turn moves at most 64 KiB. A user who has as many calls as one may
// have, who abandons calls faster than they can be cleaned up, or who comes
// back too often, must wait.
//
// One thread, which never blocks on a connection and buffers no more than one
// turn's bytes for any. Thread-safe.

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
#include "server/dataset/caller.h"
#include "server/rpc/rpc_relay.h"
#include "server/rpc/rpc_user.h"

namespace datasetd {

class RpcGate {
 public:
  struct Parts {
    // Calls of one user that gRPC has at a time; others wait.
    int max_calls_per_user = 0;
    // Returns the calls of a user that run. If they are twice as many as that,
    // since many were abandoned and have not noticed, others wait, too.
    std::function<int(uint32_t uid)> num_running;
    const Clock* clock = nullptr;  // outlives the gate
    // Passes gRPC's end of a session's connection to gRPC.
    std::function<void(uint64_t session_id, FileDescriptor connection)> serve;
    // Called when a connection ends otherwise than by Close or by the gate's
    // end. `reason` is empty if the client closed it.
    std::function<void(uint64_t session_id, const std::string& reason)> on_end;
    // For the log: called at most once a minute per user and event.
    std::function<void(const char* event, uint32_t uid, int32_t pid,
                       const std::string& detail)>
        observer;
  };
  struct Counters {
    std::atomic<uint64_t> num_abusive = 0;
    std::atomic<uint64_t> num_expired = 0;  // silent in a frame, or not reading
  };

  static absl::StatusOr<std::unique_ptr<RpcGate>> Start(Parts parts);

  // Forwards gRPC's pending responses and closes all connections.
  ~RpcGate();

  // Takes the daemon's end of a session's connection, a non-blocking stream
  // socket.
  void Open(const Caller& session, FileDescriptor connection);
  // Closes a session's connection, if it is open: its calls end.
  void Close(uint64_t session_id);
  // Passes no more connections to gRPC once this returns.
  void CloseDoor();

  const Counters& counters() const { return counters_; }

 private:
  using Side = RpcRelay::Side;
  using Result = RpcRelay::Result;
  // To open a session's connection, or, without one, to close it.
  struct Order {
    Caller session;
    FileDescriptor connection;
  };

  RpcGate(FileDescriptor epoll, FileDescriptor wake, Parts parts);
  bool Watch(int fd, uint64_t key, uint32_t events, int operation);
  void Give(Order order);
  void Wake();

  void Run();
  void OnEvent(uint64_t key, uint32_t events);
  void TakeOrders();
  void Accept(const Caller& session, FileDescriptor connection);
  int TimeoutMilliseconds() const;
  void Tick();

  void TakeTurn();
  void Enqueue(uint64_t id, RpcRelay& relay);
  // Runs one turn of a connection; true if it wants another.
  bool Run(uint64_t id, RpcRelay& relay, RpcUser& user);
  bool Admit(uint64_t id, RpcRelay& relay, RpcUser& user);
  // True if there may be more to move.
  bool Move(uint64_t id, RpcRelay& relay, RpcUser& user, Side from);
  // The number of calls that the user may open now.
  int NumAllowed(const RpcUser& user) const;
  void Hold(uint64_t id, RpcRelay& relay, RpcUser& user);
  // As EnqueueHeld, if new calls may be forwarded.
  void Unhold(RpcUser& user);
  void EndExemption(RpcUser& user);
  // Gives held connections a turn.
  void EnqueueHeld(RpcUser& user);
  void CountStreams(RpcRelay& relay, RpcUser& user);
  // Forgets a connection.
  void Drop(uint64_t id);
  // Drops it and tells on_end.
  void End(uint64_t id, const std::string& reason);
  void Report(RpcUser& user, const char* event, pid_t pid, const char* detail);

  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  const Parts parts_;
  Counters counters_;

  Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_stopping_ = false;

  // Used by the thread only.
  bool is_door_open_ = true;
  absl::Duration now_;
  absl::Duration next_tick_;
  std::map<uint64_t, std::unique_ptr<RpcRelay>> relays_;  // by session
  std::map<uint32_t, std::unique_ptr<RpcUser>> users_;
  std::deque<RpcUser*> ready_users_;
  std::vector<uint8_t> buffer_;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_GATE_H_
