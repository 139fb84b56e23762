// Limits concurrent long operations, in total and per user. Thread-safe.

#ifndef DATASETD_SERVER_RPC_USER_PLACES_H_
#define DATASETD_SERVER_RPC_USER_PLACES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace datasetd {

class UserPlaces {
 public:
  // One place; returned on destruction. The UserPlaces outlives it.
  class Place {
   public:
    Place(UserPlaces* places, uint32_t uid) : places_(places), uid_(uid) {}
    Place(Place&& other) noexcept
        : places_(std::exchange(other.places_, nullptr)), uid_(other.uid_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (places_ != nullptr) places_->Leave(uid_);
    }

   private:
    UserPlaces* places_;
    uint32_t uid_;
  };

  // `what` is said in errors: "loads"; and so is `config_key`, if what one user
  // may have is configured.
  UserPlaces(std::string what, int max_places, int max_places_per_user,
             const std::string& config_key = "")
      : what_(std::move(what)),
        max_places_(max_places),
        max_places_per_user_(max_places_per_user),
        config_key_(config_key.empty() ? ""
                                       : absl::StrCat(" (", config_key, ")")) {}

  //   RESOURCE_EXHAUSTED  all places are taken, or all of this user's
  absl::StatusOr<Place> Take(uint32_t uid) {
    MutexLock lock(&mutex_);
    const auto found = num_taken_.find(uid);
    const int own = found == num_taken_.end() ? 0 : found->second;
    if (own >= max_places_per_user_ || total_ >= max_places_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          what_, ": ", total_, " are under way, ", own, " of them of uid ", uid,
          "; there may be ", max_places_, ", and ", max_places_per_user_,
          " of one user", config_key_, ": try again when one has ended"));
    }
    ++total_;
    ++num_taken_[uid];
    return Place(this, uid);
  }

 private:
  void Leave(uint32_t uid) {
    MutexLock lock(&mutex_);
    --total_;
    const auto found = num_taken_.find(uid);
    if (--found->second == 0) num_taken_.erase(found);
  }

  const std::string what_;
  const int max_places_;
  const int max_places_per_user_;
  const std::string config_key_;
  Mutex mutex_;
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, int> num_taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_USER_PLACES_H_
