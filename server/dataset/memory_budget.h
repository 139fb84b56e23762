// Limits and accounts the bytes of a device that the daemon uses.
//
// A budget does not allocate: reserve before allocating, and keep the
// Reservation as long as the memory is allocated.
//
//   DATASETD_ASSIGN_OR_RETURN(
//       Reservation reservation,
//       budget.Reserve(MemoryKind::kSlab, uid, bytes, "slab of feed 7"));

#ifndef DATASETD_SERVER_DATASET_MEMORY_BUDGET_H_
#define DATASETD_SERVER_DATASET_MEMORY_BUDGET_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/dataset/per_user_limit.h"

namespace datasetd {

enum class MemoryKind : uint8_t {
  kDataset = 1,
  kSlab = 2,
  kScratch = 3,
  kText = 4,  // host memory: the datasets' descriptions
};
// "dataset", "slab", "scratch", "text".
const char* MemoryKindName(MemoryKind kind);

class MemoryBudget;

// Owns some bytes of a budget and returns them on destruction. Empty when moved
// from or default-constructed. Not thread-safe; may be destroyed on any thread.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  // Returns the bytes now.
  void Release();

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, uint64_t id) : budget_(budget), id_(id) {}

  MemoryBudget* budget_ = nullptr;  // null: empty
  uint64_t id_ = 0;
};

// Thread-safe. Must outlive its reservations.
class MemoryBudget {
 public:
  // Limits of one user for each kind.
  struct UserLimits {
    PerUserLimit dataset_bytes;
    PerUserLimit slab_bytes;
    PerUserLimit scratch_bytes;
    PerUserLimit text_bytes;
  };

  explicit MemoryBudget(uint64_t total_bytes)
      : MemoryBudget(total_bytes, UserLimits()) {}
  // `config_key` is the name of the total in errors.
  MemoryBudget(uint64_t total_bytes, const UserLimits& user_limits,
               std::string config_key = "memory_budget_mib")
      : total_bytes_(total_bytes),
        user_limits_(user_limits),
        config_key_(std::move(config_key)) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  // REQUIRES: no reservation exists.
  ~MemoryBudget();

  struct Terms {
    // The user limits do not apply, as for the daemon itself.
    bool is_exempt = false;
    // Several users use the item, so that it is in no user's limit; `uid` is
    // that of the first.
    bool is_shared = false;
    // Root or the daemon's own user: may see private items.
    bool is_privileged = false;
    // Errors shown to other users do not name the item.
    bool is_private = false;
  };

  // Charges `size_bytes` to `uid`. `what` describes the purpose in messages, as
  // in "dataset 'cifar10-train'". 0 bytes are always granted.
  //   RESOURCE_EXHAUSTED  names the requested and free bytes, the holders of
  //                       the rest and a remedy; or the user's limit
  absl::StatusOr<Reservation> Reserve(MemoryKind kind, uid_t uid,
                                      uint64_t size_bytes,
                                      absl::string_view what,
                                      const Terms& terms);
  absl::StatusOr<Reservation> Reserve(MemoryKind kind, uid_t uid,
                                      uint64_t size_bytes,
                                      absl::string_view what) {
    return Reserve(kind, uid, size_bytes, what, Terms());
  }
  // The error of Reserve for the user's limit alone.
  absl::Status CheckUser(MemoryKind kind, uid_t uid, uint64_t size_bytes,
                         absl::string_view what, const Terms& terms) const;

  // The most that one user may have on these terms; 0: no limit.
  uint64_t LimitOf(MemoryKind kind, const Terms& terms) const;

  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t used_bytes() const;
  uint64_t free_bytes() const;
  // The most that Reserve would grant this user.
  uint64_t FreeBytesFor(MemoryKind kind, uid_t uid, const Terms& terms) const;
  uint64_t used_bytes_of_kind(MemoryKind kind) const;

 private:
  friend class Reservation;
  struct Holding {
    MemoryKind kind;
    uid_t uid;
    uint64_t size_bytes;
    std::string what;
    bool is_private;
    bool is_shared;
  };

  void Return(uint64_t id);

  // Without shared items.
  uint64_t UsedByUser(uid_t uid, MemoryKind kind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckUserLimit(MemoryKind kind, uid_t uid, uint64_t size_bytes,
                              absl::string_view what, const Terms& terms) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Exhausted(uid_t uid, uint64_t size_bytes, absl::string_view what,
                         const Terms& terms) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A copy of all, largest first.
  std::vector<Holding> SortedHoldings() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t total_bytes_;
  const UserLimits user_limits_;
  const std::string config_key_;
  mutable Mutex mutex_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Holding> holdings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_MEMORY_BUDGET_H_
