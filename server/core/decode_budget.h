// The host memory that samples take between disk and staging: as many are
// worked on at once as fit.
//
// A sample takes memory twice: for its bytes, and once its headers are known
// for its pixels. One that is larger than all there is is let in alone, so that
// the most ever held is the limit and one sample. Thread-safe.

#ifndef DATASETD_SERVER_CORE_DECODE_BUDGET_H_
#define DATASETD_SERVER_CORE_DECODE_BUDGET_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "server/core/mutex.h"

namespace datasetd {

// Of one load.
inline constexpr int64_t kDecodeLimitBytes = 512 << 20;

class DecodeBudget {
 public:
  explicit DecodeBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // One sample's share, of one thread. Gives it back when destroyed.
  class Share {
   public:
    explicit Share(DecodeBudget* budget) : budget_(budget) {}
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Each once, in this order; they wait for other shares to go.
    void TakeRaw(int64_t size_bytes);
    void TakeDecoded(int64_t size_bytes);

   private:
    DecodeBudget* const budget_;
    int64_t size_bytes_ = 0;
    bool is_decoding_ = false;
  };

  // The most held so far.
  int64_t peak_bytes() const;

 private:
  void Add(int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t limit_bytes_;
  mutable Mutex mutex_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_decoding_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_DECODE_BUDGET_H_
