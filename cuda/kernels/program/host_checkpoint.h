// Checkpoints at which long work on a host thread can pause or stop.
//
// The loops of the host executors call GoesOn() about once per row of an image.
// The thread's current HostRun, if any, may then block the thread for a while
// or stop the work. A call costs two loads.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_

#include <atomic>
#include <cstdint>

#include "cuda/kernels/program/params.h"

namespace datasetd {

class HostRun {
 public:
  enum Wish : uint8_t {
    kGoOn,
    kEndAtSample,  // return between two samples, to be called again
    kPause,        // call Pause() at the next checkpoint
  };

  virtual ~HostRun() = default;
  // Called on the thread of the run. Returns false to skip the rest of the
  // work.
  virtual bool Pause() = 0;

  Wish wish() const { return wish_.load(std::memory_order_relaxed); }
  // Thread-safe.
  void SetWish(Wish wish) { wish_.store(wish, std::memory_order_relaxed); }

  // Run of this thread, or null.
  static inline constinit thread_local HostRun* current = nullptr;

 private:
  std::atomic<Wish> wish_ = kGoOn;
};

// Makes `run` the thread's current run for its lifetime.
class ScopedHostRun {
 public:
  explicit ScopedHostRun(HostRun* run) : previous_(HostRun::current) {
    HostRun::current = run;
  }
  ~ScopedHostRun() { HostRun::current = previous_; }
  ScopedHostRun(const ScopedHostRun&) = delete;
  ScopedHostRun& operator=(const ScopedHostRun&) = delete;

 private:
  HostRun* const previous_;
};

// Checkpoint within a sample. Returns false to skip the rest; the result is
// then discarded.
inline bool GoesOn() {
  HostRun* const run = HostRun::current;
  return run == nullptr || run->wish() != HostRun::kPause || run->Pause();
}

// Checkpoint between two samples. True if the work must return here, to be
// continued by a later call.
inline bool EndsAtSample() {
  const HostRun* const run = HostRun::current;
  return run != nullptr && run->wish() != HostRun::kGoOn;
}

// Calls run_row(row) for the rows of the batch's part, until it returns false:
// the rest is skipped then. Returns the next row: past the last one, or earlier
// if the run EndsAtSample.
template <typename RunRow>
int32_t RunRows(const BatchTask& batch, const RunRow& run_row) {
  const int32_t end = batch.first_row + NumRows(batch);
  for (int32_t row = batch.first_row; row < end;) {
    if (!run_row(row)) return end;
    if (++row < end && EndsAtSample()) return row;
  }
  return end;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_
