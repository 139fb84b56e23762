// The host memory budget of samples between disk and staging, shared by all
// loads, dry runs and header scans.
//
// A sample takes memory for its encoded bytes and, once its headers are read,
// for its pixels and pretransforms. A sample above the per-sample limit is
// refused; others wait until memory is available. One user gets at most half of
// the budget, or the per-sample limit if that is larger. Samples that wait for
// the total, not for their user's half, are served in order, so that a large
// sample is not overtaken for ever.
//
// Thread-safe. Outlives its shares.

#ifndef DATASETD_SERVER_DATASET_DECODE_BUDGET_H_
#define DATASETD_SERVER_DATASET_DECODE_BUDGET_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace datasetd {

class DecodeBudget {
 public:
  // Both are at least 1.
  struct Limits {
    int64_t sample_bytes = int64_t{1} << 30;  // max_sample_memory_mib
    // decode_memory_mib; raised to sample_bytes if lower.
    int64_t total_bytes = int64_t{2} << 30;
  };

  explicit DecodeBudget(const Limits& limits);
  DecodeBudget(const DecodeBudget&) = delete;
  DecodeBudget& operator=(const DecodeBudget&) = delete;

  const Limits& limits() const { return limits_; }

  // OK if one sample may take this much.
  //   INVALID_ARGUMENT  it may not; names both numbers and the configuration
  //                     key
  absl::Status CheckSample(int64_t size_bytes) const;

  // The share of one sample, used by one thread. Released on destruction.
  class Share {
   public:
    // Its memory is charged to `uid`. Without a budget nothing is counted.
    Share(DecodeBudget* budget, uid_t uid) : budget_(budget), uid_(uid) {}
    ~Share() { Release(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Blocks until the memory is available. REQUIRES: the share is empty;
    // holding one part while waiting for another could deadlock. Gives up once
    // `is_cancelled`, which may be null, is set.
    //   INVALID_ARGUMENT  as CheckSample
    //   CANCELLED         it was set
    absl::Status Take(int64_t size_bytes,
                      const std::atomic<bool>* is_cancelled = nullptr);

    // Grows to `size_bytes` without waiting. Returns false if there is not
    // enough memory now: then free the sample's memory, Release, and Take the
    // whole amount.
    //   INVALID_ARGUMENT  as CheckSample
    absl::StatusOr<bool> TryGrowTo(int64_t size_bytes);

    void Release();

   private:
    DecodeBudget* const budget_;
    const uid_t uid_;
    int64_t size_bytes_ = 0;
  };

  int64_t used_bytes() const;
  // The highest use so far.
  int64_t peak_bytes() const;

 private:
  struct Waiter {
    uid_t uid;
    int64_t size_bytes;
    bool is_served = false;
  };

  bool FitsUser(uid_t uid, int64_t size_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FitsAll(int64_t size_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return size_bytes <= limits_.total_bytes - used_bytes_;
  }
  void Add(uid_t uid, int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Serves waiters while memory is available.
  void Serve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  const int64_t user_bytes_;
  mutable Mutex mutex_;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, int64_t> used_by_user_ ABSL_GUARDED_BY(mutex_);
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The budget and the user that decoding is charged to.
struct DecodeAccount {
  DecodeBudget* budget = nullptr;  // never null when used
  uid_t uid = 0;
  // Pays for the buffers that a load keeps. May be null.
  DecodeBudget* staging = nullptr;
  // Pays for the lists of samples and files that sources keep. May be null.
  DecodeBudget* lists = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DECODE_BUDGET_H_
