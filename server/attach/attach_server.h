// The daemon's socket: identifies clients and ties what they hold to their
// connections. Messages: proto/attach_protocol.h.
//
// A connection that sends Hello is a session, and gets a second one for its
// RPCs; one that sends a session's token and a feed is that feed's lease. The
// end of a session, by either of its connections, ends its RPCs and releases
// what it holds and its feeds that were never attached. The end of a lease
// stops production at once; the slab is freed when the client sends Detached or
// its process exits (seen by pidfd). One thread; its I/O never blocks: arrays
// are read, and connections and what clients sent are closed, on threads of
// their users. A connection is closed if it does not introduce itself within 5
// s; if there are too many such connections and it is the oldest of the user
// who has most of them; if it sends a message out of order, of a wrong size or
// with descriptors that are not due; or if it does not take what it is sent.
//
// Thread-safe.

#ifndef DATASETD_SERVER_ATTACH_ATTACH_SERVER_H_
#define DATASETD_SERVER_ATTACH_ATTACH_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "proto/attach_protocol.h"
#include "server/attach/attach_connection.h"
#include "server/attach/event_barrier.h"
#include "server/attach/session_table.h"
#include "server/attach/user_threads.h"
#include "server/feed/feed_table.h"
#include "server/registry/dataset_registry.h"
#include "server/rpc/rpc_gate.h"

namespace datasetd {

class AttachServer {
 public:
  struct Counters {
    std::atomic<uint64_t> num_refused = 0;     // with a reason
    std::atomic<uint64_t> num_violations = 0;  // closed without a reply
    std::atomic<uint64_t> num_failed_imports = 0;
  };
  // `detail` makes its text only when the observer needs it.
  using Observer =
      std::function<void(const char* event, uint32_t uid, int32_t pid,
                         absl::FunctionRef<std::string()> detail)>;

  // The pointers outlive the server. `on_tick` (may be null) is called every
  // second on the server's thread.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(
      FileDescriptor listener, SessionTable* sessions, RpcGate* gate,
      FeedTable* feeds, DatasetRegistry* datasets, Observer observer,
      std::function<void()> on_tick);
  // Closes all connections; the table keeps the feeds' slabs.
  ~AttachServer();

  // Sends a goodbye to the leases of these feeds and ends them.
  void EndLeases(std::vector<uint64_t> feed_ids, attach::GoodbyeCode code,
                 std::string reason);

  // Ends a session, if it is open, with a goodbye unless `reason` is empty.
  void EndSession(uint64_t session_id, std::string reason);

  // Says goodbye to the sessions, and refuses new sessions and leases by a
  // goodbye.
  void BeginDrain(std::string reason);
  // Blocks until clients have closed all lease connections; false after
  // `timeout`.
  bool AwaitNoLeases(absl::Duration timeout) const;

  // Blocks until everything that clients sent or closed before this call has
  // been processed, at most for `timeout`.
  void DrainPendingEvents(absl::Duration timeout);

  const Counters& counters() const { return counters_; }

 private:
  using Role = AttachConnection::Role;
  struct Client {
    std::unique_ptr<AttachConnection> connection;
    uint64_t number = 0;      // in order of arrival
    absl::Duration deadline;  // for introducing itself
  };
  struct Goodbye {
    bool is_to_sessions = false;  // to sessions instead of feeds
    std::vector<uint64_t> feed_ids;
    attach::GoodbyeCode code;
    std::string reason;
  };
  struct SessionEnd {
    uint64_t session_id;
    std::string reason;
  };

  // Of the arrays of a client's feed, or of its other weights.
  struct ReadResult {
    int fd;
    uint64_t number;      // Client::number
    uint64_t session_id;  // of arrays
    absl::Status status;
  };

  AttachServer(FileDescriptor listener, FileDescriptor epoll,
               FileDescriptor wake, SessionTable* sessions, RpcGate* gate,
               FeedTable* feeds, DatasetRegistry* datasets, Observer observer,
               std::function<void()> on_tick);
  void Run();
  void Wake();
  void Accept();
  // Closes one connection that has not introduced itself.
  void DropOldestNew();
  void Listen(bool listen);
  void Receive(int fd);
  // Each returns false if the connection must be closed.
  bool OnHello(AttachConnection& connection, const attach::Hello& message);
  bool OnAttachFeed(AttachConnection& connection,
                    const attach::AttachFeed& message,
                    std::vector<FileDescriptor>& descriptors);
  bool Attach(AttachConnection& connection, uint64_t feed_id,
              uint64_t session_id);
  bool OnSetWeights(AttachConnection& connection,
                    std::vector<FileDescriptor>& descriptors);
  // Calls `read` with the descriptors on a thread of the client's user, and
  // then FinishReads. RESOURCE_EXHAUSTED if there is no thread.
  absl::Status BeginRead(
      const AttachConnection& connection, uint64_t session_id,
      std::vector<FileDescriptor>& descriptors,
      std::function<absl::Status(absl::Span<const FileDescriptor>)> read);
  // Continues OnAttachFeed where arrays were read, and OnSetWeights.
  void FinishReads();
  bool Violate(const AttachConnection& connection, const char* what);
  bool Refuse(AttachConnection& connection, const absl::Status& status);
  // Refuses by a goodbye, so that the client knows that the daemon stops.
  bool RefuseWhileDraining(AttachConnection& connection);
  void NoteRefusal(const AttachConnection& connection,
                   const absl::Status& status);
  void OnFailedImport(const AttachConnection& connection, const char* reason);
  // `is_slab_unused`: the client said that it no longer uses the lease's slab.
  void Close(int fd, bool is_slab_unused = false);
  void OnProcessEnd(int pidfd);
  void SendGoodbyes();
  void EndSessions();
  void ExpireHandshakes();
  bool Watch(int fd);
  void CountLeases(int change);

  const FileDescriptor listener_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  SessionTable* const sessions_;
  RpcGate* const gate_;
  FeedTable* const feeds_;
  DatasetRegistry* const datasets_;
  const Observer observer_;
  const std::function<void()> on_tick_;
  Counters counters_;

  mutable Mutex mutex_;
  std::vector<Goodbye> goodbyes_ ABSL_GUARDED_BY(mutex_);
  std::vector<SessionEnd> session_ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReadResult> read_results_ ABSL_GUARDED_BY(mutex_);
  int num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  EventBarrier barrier_;
  // False while the thread has processed all that it took from epoll_.
  std::atomic<bool> is_busy_ = true;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_draining_ = false;

  // Used by the thread only.
  std::map<int, Client> clients_;  // by descriptor
  // Processes that may still use a slab whose lease has ended: pidfd -> feed.
  struct Watched {
    FileDescriptor process;
    uint64_t feed_id;
  };
  std::map<int, Watched> processes_;
  int num_new_ = 0;
  bool is_listening_ = false;
  uint64_t num_accepted_ = 0;
  // The first reads memfds, which ends; the second closes what may never end.
  UserThreads readers_{"arrays", absl::InfiniteDuration()};
  UserThreads closers_{"close", absl::Seconds(1)};
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_ATTACH_SERVER_H_
