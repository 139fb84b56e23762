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

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cuda/file_descriptor.h"
#include "proto/attach_protocol.h"
#include "server/attach/session_table.h"
#include "server/core/dataset_registry.h"
#include "server/core/feed_table.h"
#include "server/core/mutex.h"

namespace datasetd {

// A bound and listening SOCK_SEQPACKET socket at `path`, whose stale file is
// replaced: the caller makes sure that no other daemon uses it.
//   INVALID_ARGUMENT  the path is longer than a socket's may be
absl::StatusOr<FileDescriptor> ListenSeqpacket(const std::string& path);

class AttachServer {
 public:
  struct Counters {
    std::atomic<uint64_t> num_refused = 0;     // with a reason
    std::atomic<uint64_t> num_violations = 0;  // closed without a word
    std::atomic<uint64_t> num_failed_imports = 0;
  };
  using Observer =
      std::function<void(const char* event, uint32_t uid, int32_t pid,
                         const std::string& detail)>;

  // The tables outlive the server.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(
      FileDescriptor listener, SessionTable* sessions, FeedTable* feeds,
      DatasetRegistry* datasets, Observer observer);
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
  enum class Role : uint8_t { kNew, kSession, kLease, kFarewell };
  struct Connection {
    FileDescriptor fd;
    FileDescriptor process;  // pidfd
    Role role = Role::kNew;
    ucred peer = {};
    absl::Time deadline;
    SessionToken token = {};
    uint64_t number = 0;  // in the order of arrival
    uint64_t session_id = 0;
    uint64_t feed_id = 0;
    bool is_detached = false;  // the slab is not used any more
  };
  struct Farewell {
    bool is_to_sessions = false;  // instead of to feeds
    std::vector<uint64_t> feed_ids;
    attach::GoodbyeCode code;
    std::string reason;
  };

  AttachServer(FileDescriptor listener, FileDescriptor epoll, FileDescriptor wake,
               SessionTable* sessions, FeedTable* feeds,
               DatasetRegistry* datasets, Observer observer);
  void Run();
  void Wake();
  // Whether somebody waits in AwaitHeard. Between two rounds of the loop; the
  // last one had `num_events`.
  bool IsAwaited(int num_events);
  void Accept();
  // Closes one connection that has not introduced itself.
  void DropOldestNew();
  void Listen(bool listen);
  void Receive(int fd);
  // False: close the connection.
  bool OnHello(Connection& connection, const attach::Header& header);
  bool OnAttachFeed(Connection& connection, const attach::AttachFeed& message);
  bool OnLeaseMessage(Connection& connection, const void* data, size_t size);
  bool Violation(const Connection& connection, const char* what);
  bool Refuse(const Connection& connection, const absl::Status& status);
  void Close(int fd);
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
  Counters counters_;

  mutable Mutex mutex_;
  std::vector<Farewell> farewells_ ABSL_GUARDED_BY(mutex_);
  int num_leases_ ABSL_GUARDED_BY(mutex_) = 0;
  // Calls of AwaitHeard that began, and those of them whose wait is over.
  uint64_t num_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_heard_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_draining_ = false;

  // Of the thread.
  std::map<int, std::unique_ptr<Connection>> connections_;
  // Processes that may still use a slab whose lease has ended: pidfd -> feed.
  struct Watched {
    FileDescriptor process;
    uint64_t feed_id;
  };
  std::map<int, Watched> processes_;
  int num_new_ = 0;
  bool is_listening_ = false;
  uint64_t num_accepted_ = 0;
  // Of AwaitHeard: the calls that this pass is for (0: there is none), and the
  // events after which it is over in any case.
  uint64_t asked_ = 0;
  int64_t num_events_left_ = 0;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_ATTACH_SERVER_H_
