#include "server/feed/feed_quota.h"

#include "absl/strings/str_cat.h"

namespace datasetd {

absl::StatusOr<FeedQuota::Place> FeedQuota::Take(uint32_t uid,
                                                 bool is_privileged) {
  MutexLock lock(&mutex_);
  if (num_feeds_ >= max_feeds_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "there are ", max_feeds_,
        " feeds already, which is 'max_feeds' of the configuration"));
  }
  const auto found = num_by_uid_.find(uid);
  const size_t num_of_user = found == num_by_uid_.end() ? 0 : found->second;
  const uint64_t limit = max_feeds_per_user_.Of(is_privileged);
  if (limit != 0 && num_of_user >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("uid ", uid, " has ", num_of_user,
                     " feeds already, which is 'user_limits.max_feeds' of the "
                     "configuration; close one"));
  }
  ++num_feeds_;
  ++num_by_uid_[uid];
  return Place(this, uid);
}

void FeedQuota::Return(uint32_t uid) {
  MutexLock lock(&mutex_);
  --num_feeds_;
  if (--num_by_uid_[uid] == 0) num_by_uid_.erase(uid);
}

}  // namespace datasetd
