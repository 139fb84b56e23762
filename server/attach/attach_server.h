// The attach socket: who a client is, and while its connections live, what it
// holds. Messages: proto/attach_protocol.h.
//
// A connection that says Hello is a session; one that shows a session's token
// and a feed is that feed's lease. The end of a session frees what it holds
// and never attached; the end of a lease ends production at once, and the
// slab is freed when the client says Detached or its process is gone (a
// pidfd tells). One thread; its I/O never blocks. A connection that has not
// introduced itself within 5 s, or is the oldest such of the user who has most
// of them when there are too many, sends anything out of order, of another
// size, or with descriptors, or does not take what it is sent, is closed.
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
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "proto/attach_protocol.h"
#include "server/attach/attach_connection.h"
#include "server/attach/event_barrier.h"
#include "server/attach/session_table.h"
#include "server/feed/feed_table.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

class AttachServer {
 public:
  struct Counters {
    std::atomic<uint64_t> num_refused = 0;     // with a reason
    std::atomic<uint64_t> num_violations = 0;  // closed without a word
    std::atomic<uint64_t> num_failed_imports = 0;
  };
  // `detail` makes a text that the observer may not want.
  using Observer =
      std::function<void(const char* event, uint32_t uid, int32_t pid,
                         absl::FunctionRef<std::string()> detail)>;

  // The tables outlive the server. `on_tick`, which may be null, is called
  // every second by the server's thread.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(
      FileDescriptor listener, SessionTable* sessions, FeedTable* feeds,
      DatasetRegistry* datasets, Observer observer,
      std::function<void()> on_tick);
  // Closes all connections; feeds' slabs stay where the table has them.
  ~AttachServer();

  // Says goodbye to the leases of these feeds and ends them.
  void EndLeases(std::vector<uint64_t> feed_ids, attach::GoodbyeCode code,
                 std::string reason);

  // From now on no session or lease is accepted; sessions are told.
  void BeginDrain(std::string reason);
  // Waits until every lease connection is closed by its client; false when the
  // time is over.
  bool AwaitNoLeases(absl::Duration timeout) const;

  // Waits until all that clients sent and closed before this call is known to
  // the tables, at most `timeout`.
  void AwaitHeard(absl::Duration timeout);

  const Counters& counters() const { return counters_; }

 private:
  using Role = AttachConnection::Role;
  struct Client {
    std::unique_ptr<AttachConnection> connection;
    uint64_t number = 0;  // in the order of arrival
    absl::Time deadline;  // to introduce itself
  };
  struct Farewell {
    bool is_to_sessions = false;  // instead of to feeds
    std::vector<uint64_t> feed_ids;
    attach::GoodbyeCode code;
    std::string reason;
  };

  AttachServer(FileDescriptor listener, FileDescriptor epoll,
               FileDescriptor wake, SessionTable* sessions, FeedTable* feeds,
               DatasetRegistry* datasets, Observer observer,
               std::function<void()> on_tick);
  void Run();
  void Wake();
  void Accept();
  // Closes one connection that has not introduced itself.
  void DropOldestNew();
  void Listen(bool listen);
  void Receive(int fd);
  // False: close the connection.
  bool OnHello(AttachConnection& connection);
  bool OnAttachFeed(AttachConnection& connection,
                    const attach::AttachFeed& message);
  bool Violate(const AttachConnection& connection, const char* what);
  bool Refuse(AttachConnection& connection, const absl::Status& status);
  void OnFailedImport(const AttachConnection& connection, const char* reason);
  // `is_slab_unused`: the client said that it is done with a lease's slab.
  void Close(int fd, bool is_slab_unused = false);
  void OnProcessEnd(int pidfd);
  void SayFarewells();
  void ExpireHandshakes();
  bool Watch(int fd);
  void CountLeases(int change);

  const FileDescriptor listener_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  SessionTable* const sessions_;
  FeedTable* const feeds_;
  DatasetRegistry* const datasets_;
  const Observer observer_;
  const std::function<void()> on_tick_;
  Counters counters_;

  mutable Mutex mutex_;
  std::vector<Farewell> farewells_ ABSL_GUARDED_BY(mutex_);
  int num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  EventBarrier barrier_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_draining_ = false;

  // Of the thread.
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
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_ATTACH_SERVER_H_
