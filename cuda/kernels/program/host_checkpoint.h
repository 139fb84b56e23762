// Where long work on a host thread lets others in.
//
// The loops of the host executors call GoesOn() about once per row of an image.
// A HostRun that is current on the thread decides what that does: it may block
// the thread for a while, or say that the rest of the work is to be left out.
// Without one, work runs through. A call costs two loads.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_

#include <atomic>
#include <cstdint>

namespace datasetd {

class HostRun {
 public:
  enum Wish : uint8_t {
    kGoOn,
    kEndAtSample,  // return between two samples, to be called again
    kPause,        // call Pause() at the next checkpoint
  };

  virtual ~HostRun() = default;
  // On the thread of the run. False: leave out the rest of the work.
  virtual bool Pause() = 0;

  Wish wish() const { return wish_.load(std::memory_order_relaxed); }
  // From any thread.
  void SetWish(Wish wish) { wish_.store(wish, std::memory_order_relaxed); }

  // The run of this thread, or null.
  static inline constinit thread_local HostRun* current = nullptr;

 private:
  std::atomic<Wish> wish_ = kGoOn;
};

// Makes `run` the current one while this lives.
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

// A checkpoint within a sample. False: leave out the rest; the result is not
// used.
inline bool GoesOn() {
  HostRun* const run = HostRun::current;
  return run == nullptr || run->wish() != HostRun::kPause || run->Pause();
}

// Between two samples: whether to return here, to be called again later.
inline bool EndsAtSample() {
  const HostRun* const run = HostRun::current;
  return run != nullptr && run->wish() != HostRun::kGoOn;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_HOST_CHECKPOINT_H_
