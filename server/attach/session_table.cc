#include "server/attach/session_table.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace datasetd {

absl::StatusOr<SessionTable::Opened> SessionTable::Open(uint32_t uid,
                                                        int32_t pid) {
  Opened opened;
  if (getrandom(opened.token.data(), opened.token.size(), 0) !=
      static_cast<ssize_t>(opened.token.size())) {
    return absl::ErrnoToStatus(errno, "session: getrandom");
  }
  MutexLock lock(&mutex_);
  if (sessions_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", max_sessions_,
                     " sessions already, which is 'max_sessions' of the "
                     "configuration; close some clients"));
  }
  opened.session_id = next_id_++;
  sessions_[opened.token] = Caller{opened.session_id, uid, pid};
  return opened;
}

void SessionTable::Close(const SessionToken& token) {
  MutexLock lock(&mutex_);
  sessions_.erase(token);
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

}  // namespace datasetd
