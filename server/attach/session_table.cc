#include "server/attach/session_table.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

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
  sessions_.erase(token);
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
  return absl::UnauthenticatedError(absl::StrCat(
      "no live session has this token: keep the attach connection open that "
      "gave it, and send it as metadata '",
      attach::kSessionTokenMetadataKey, "'"));
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
