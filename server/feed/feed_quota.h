// Limits the number of feeds, in total and per user.
//
// A feed holds a place from before its memory is allocated until after it is
// freed. Thread-safe; takes no other lock.

#ifndef DATASETD_SERVER_FEED_FEED_QUOTA_H_
#define DATASETD_SERVER_FEED_FEED_QUOTA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/dataset/per_user_limit.h"

namespace datasetd {

class FeedQuota {
 public:
  // The place of one feed; returned on destruction. Empty when moved from or
  // default-constructed.
  class Place {
   public:
    Place() = default;
    Place(FeedQuota* quota, uint32_t uid) : quota_(quota), uid_(uid) {}
    Place(Place&& other) noexcept
        : quota_(std::exchange(other.quota_, nullptr)), uid_(other.uid_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(quota_, other.quota_);
      std::swap(uid_, other.uid_);
      return *this;
    }
    ~Place() {
      if (quota_ != nullptr) quota_->Return(uid_);
    }

   private:
    FeedQuota* quota_ = nullptr;
    uint32_t uid_ = 0;
  };

  FeedQuota(size_t max_feeds, PerUserLimit max_feeds_per_user)
      : max_feeds_(max_feeds), max_feeds_per_user_(max_feeds_per_user) {}
  FeedQuota(const FeedQuota&) = delete;
  FeedQuota& operator=(const FeedQuota&) = delete;

  // Takes a place. The quota outlives its places.
  //   RESOURCE_EXHAUSTED  a limit is reached; names it and its configuration
  //                       key
  absl::StatusOr<Place> Take(uint32_t uid, bool is_privileged = false);

 private:
  void Return(uint32_t uid);

  const size_t max_feeds_;
  const PerUserLimit max_feeds_per_user_;
  Mutex mutex_;
  size_t num_feeds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, size_t> num_by_uid_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_QUOTA_H_
