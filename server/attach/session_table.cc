#include "server/attach/session_table.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace datasetd {

SessionTable::SessionTable(size_t max_sessions,
                           PerUserLimit max_sessions_per_user)
    : max_sessions_(max_sessions),
      max_sessions_per_user_(max_sessions_per_user),
      daemon_uid_(getuid()) {}

absl::StatusOr<SessionTable::Opened> SessionTable::Open(uint32_t uid,
                                                        int32_t pid,
                                                        int32_t own_pid) {
  Opened opened;
  if (getrandom(opened.token.data(), opened.token.size(), 0) !=
      static_cast<ssize_t>(opened.token.size())) {
    return absl::ErrnoToStatus(errno, "session: getrandom");
  }
  const bool is_privileged = uid == 0 || uid == daemon_uid_;
  const uint64_t limit = max_sessions_per_user_.Of(is_privileged);
  MutexLock lock(&mutex_);
  if (is_closed_) return absl::UnavailableError("the daemon is shutting down");
  if (sessions_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", max_sessions_,
                     " sessions already, which is 'max_sessions' of the "
                     "configuration; close some clients"));
  }
  const size_t of_user = std::count_if(
      sessions_.begin(), sessions_.end(),
      [&](const auto& session) { return session.second.uid == uid; });
  if (limit != 0 && of_user >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "uid ", uid, " has ", of_user,
        " sessions already, which is 'user_limits.max_sessions' of the "
        "configuration; close some clients"));
  }
  opened.session_id = next_id_++;
  sessions_[opened.token] = Caller{.session_id = opened.session_id,
                                   .uid = uid,
                                   .pid = pid,
                                   .own_pid = own_pid,
                                   .is_privileged = is_privileged};
  return opened;
}

void SessionTable::Close(const SessionToken& token) {
  MutexLock lock(&mutex_);
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) return;
  const auto connection = std::find_if(
      connections_.begin(), connections_.end(), [&](const auto& entry) {
        return entry.second.session_id == found->second.session_id;
      });
  if (connection != connections_.end()) connections_.erase(connection);
  sessions_.erase(found);
}

void SessionTable::SetConnection(uint64_t session_id, int descriptor) {
  MutexLock lock(&mutex_);
  // That of an earlier connection whose session is about to be closed.
  connections_.erase(descriptor);
  for (const auto& [token, caller] : sessions_) {
    if (caller.session_id == session_id) connections_[descriptor] = caller;
  }
}

absl::StatusOr<Caller> SessionTable::OfConnection(
    absl::string_view peer) const {
  int descriptor = 0;
  if (absl::ConsumePrefix(&peer, "fd:") &&
      absl::SimpleAtoi(peer, &descriptor)) {
    MutexLock lock(&mutex_);
    const auto found = connections_.find(descriptor);
    if (found != connections_.end()) return found->second;
  }
  return absl::UnauthenticatedError("the session of this call has ended");
}

bool SessionTable::CloseIfEmpty() {
  MutexLock lock(&mutex_);
  is_closed_ = sessions_.empty();
  return is_closed_;
}

void SessionTable::Reopen() {
  MutexLock lock(&mutex_);
  is_closed_ = false;
}

absl::StatusOr<Caller> SessionTable::Find(absl::string_view token) const {
  SessionToken key;
  if (token.size() == key.size()) {
    std::copy(token.begin(), token.end(), key.begin());
    MutexLock lock(&mutex_);
    const auto found = sessions_.find(key);
    if (found != sessions_.end()) return found->second;
  }
  return absl::UnauthenticatedError(
      "no live session has this token: keep the connection open that gave it");
}

size_t SessionTable::num_sessions() const {
  MutexLock lock(&mutex_);
  return sessions_.size();
}

uint64_t SessionTable::num_opened() const {
  MutexLock lock(&mutex_);
  return next_id_ - 1;
}

}  // namespace datasetd
