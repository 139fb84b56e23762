// The live sessions: for each connected client its identity from the kernel, a
// random token and its gRPC connection. Thread-safe.

#ifndef DATASETD_SERVER_ATTACH_SESSION_TABLE_H_
#define DATASETD_SERVER_ATTACH_SESSION_TABLE_H_

#include <array>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "proto/attach_protocol.h"
#include "server/dataset/caller.h"
#include "server/dataset/per_user_limit.h"

namespace datasetd {

using SessionToken = std::array<uint8_t, attach::kTokenBytes>;

class SessionTable {
 public:
  SessionTable(size_t max_sessions, PerUserLimit max_sessions_per_user);

  struct Opened {
    SessionToken token;
    uint64_t session_id;
  };
  // `own_pid` is Caller::own_pid.
  //   RESOURCE_EXHAUSTED  max_sessions are open, in total or for this user
  //   UNAVAILABLE         the table is closed
  absl::StatusOr<Opened> Open(uint32_t uid, int32_t pid, int32_t own_pid = 0);
  void Close(const SessionToken& token);

  // Calls on the connection that gRPC has at this descriptor are the session's
  // until it is closed. The number may be another session's once gRPC has
  // closed the descriptor.
  void SetConnection(uint64_t session_id, int descriptor);
  // `peer` is a value of grpc::ServerContext::peer().
  //   UNAUTHENTICATED  the connection is that of no live session
  absl::StatusOr<Caller> OfConnection(absl::string_view peer) const;

  // Refuses new sessions and returns true, if there are none. Reopen undoes it.
  bool CloseIfEmpty();
  void Reopen();

  //   UNAUTHENTICATED  no live session has this token
  absl::StatusOr<Caller> Find(absl::string_view token) const;

  size_t num_sessions() const;
  // Sessions opened so far.
  uint64_t num_opened() const;

 private:
  const size_t max_sessions_;
  const PerUserLimit max_sessions_per_user_;
  const uint32_t daemon_uid_;
  mutable Mutex mutex_;
  std::map<SessionToken, Caller> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Caller> connections_ ABSL_GUARDED_BY(mutex_);  // by descriptor
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_SESSION_TABLE_H_
