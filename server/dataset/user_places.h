// Limits how many of something there are at a time, in total and per user.
// Thread-safe; takes no other lock.

#ifndef DATASETD_SERVER_DATASET_USER_PLACES_H_
#define DATASETD_SERVER_DATASET_USER_PLACES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/dataset/per_user_limit.h"

namespace datasetd {

class UserPlaces {
 public:
  // The place of one; returned on destruction. Empty when moved from or
  // default-constructed. The UserPlaces outlives it.
  class Place {
   public:
    Place() = default;
    Place(UserPlaces* places, uint32_t uid) : places_(places), uid_(uid) {}
    Place(Place&& other) noexcept
        : places_(std::exchange(other.places_, nullptr)), uid_(other.uid_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(uid_, other.uid_);
      return *this;
    }
    ~Place() {
      if (places_ != nullptr) places_->Return(uid_);
    }

   private:
    UserPlaces* places_ = nullptr;
    uint32_t uid_ = 0;
  };

  // The places taken when one is refused, and their limits.
  struct Usage {
    uint32_t uid;
    uint64_t total;
    uint64_t max_total;
    uint64_t own;  // of the user
    uint64_t max_own;
  };
  // Returns the text of the error.
  using Refusal = std::function<std::string(const Usage& usage)>;

  UserPlaces(uint64_t max_total, PerUserLimit max_own, Refusal refusal)
      : max_total_(max_total),
        max_own_(max_own),
        refusal_(std::move(refusal)) {}
  UserPlaces(const UserPlaces&) = delete;
  UserPlaces& operator=(const UserPlaces&) = delete;

  //   RESOURCE_EXHAUSTED  all places are taken, or all of this user's
  absl::StatusOr<Place> Take(uint32_t uid, bool is_privileged = false) {
    MutexLock lock(&mutex_);
    return TakeLocked(uid, is_privileged);
  }

  // As Take, but waits for a place while `may_wait`, which is polled.
  absl::StatusOr<Place> Await(uint32_t uid,
                              absl::FunctionRef<bool()> may_wait) {
    constexpr absl::Duration kPollPeriod = absl::Milliseconds(100);
    absl::StatusOr<Place> place;
    const auto has_place = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      place = TakeLocked(uid, /*is_privileged=*/false);
      return place.ok();
    };
    while (true) {
      {
        MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(Condition(&has_place), kPollPeriod)) {
          return place;
        }
      }
      if (!may_wait()) return place;
    }
  }

 private:
  absl::StatusOr<Place> TakeLocked(uint32_t uid, bool is_privileged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = num_taken_.find(uid);
    const uint64_t own = found == num_taken_.end() ? 0 : found->second;
    const uint64_t max_own = max_own_.Of(is_privileged);
    if (total_ >= max_total_ || (max_own != 0 && own >= max_own)) {
      return absl::ResourceExhaustedError(
          refusal_({uid, total_, max_total_, own, max_own}));
    }
    ++total_;
    ++num_taken_[uid];
    return Place(this, uid);
  }

  void Return(uint32_t uid) {
    MutexLock lock(&mutex_);
    --total_;
    if (--num_taken_[uid] == 0) num_taken_.erase(uid);
  }

  const uint64_t max_total_;
  const PerUserLimit max_own_;
  const Refusal refusal_;
  Mutex mutex_;
  uint64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, uint64_t> num_taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_USER_PLACES_H_
