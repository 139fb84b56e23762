// Streams and events of the host backend.
//
// Work waits in a ring of fixed size. Launches run on the pool's threads,
// several of one stream at once, as many as the program has scratch memory for;
// a copy waits for all work before it, and all work after it waits for the
// copy. Work counts as complete in the order of submission: an event is done
// once everything submitted before Record is. A launch that the pool interrupts
// between two samples waits again, and continues with the next one.

#ifndef DATASETD_CUDA_HOST_HOST_STREAM_H_
#define DATASETD_CUDA_HOST_HOST_STREAM_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"
#include "cuda/host/host_thread_pool.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

class HostProgram final : public LoadedProgram {
 public:
  explicit HostProgram(const AugmentProgram& program) : program_(program) {
    ClearTeamFlags(program_);
  }
  const AugmentProgram& program() const { return program_; }

 private:
  const AugmentProgram program_;
};

// The number of pieces of work of a stream that are complete, all of them
// submitted before any that is not. Release when raised, acquire when read.
using HostStreamProgress = std::atomic<uint64_t>;

class HostEvent final : public Event {
 public:
  absl::StatusOr<bool> IsDone() override {
    return progress_ == nullptr || progress_->load() >= sequence_;
  }

 private:
  friend class HostStream;
  // Of the stream recorded last, which may be gone; null if unrecorded.
  std::shared_ptr<const HostStreamProgress> progress_;
  uint64_t sequence_ = 0;
};

// What one launch fills is published at once: small batches go together, so
// that fewer threads are woken.
inline constexpr int kMaxHostBatches = 8;

class HostStream final : public Stream, private HostThreadPool::Job {
 public:
  // Runs one batch on the calling thread, from a position on; called by several
  // at once. False if it is to be called again, with the new position.
  using AugmentFunction = bool (*)(const AugmentProgram&, const BatchTask&,
                                   HostPosition*);

  // Pieces of work that may wait or run at once; one more is
  // RESOURCE_EXHAUSTED.
  static constexpr int kMaxPendingWork = 1024;

  // REQUIRES: `pool` outlives the stream. `on_done` may be empty; its calls do
  // not overlap.
  HostStream(HostThreadPool* pool, AugmentFunction augment,
             std::function<void()> on_done, HostUser user = {});
  ~HostStream() override;

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from,
                            size_t size_bytes) override;
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                          size_t size_bytes) override;
  absl::Status Augment(const LoadedProgram& program,
                       absl::Span<const BatchTask> batches) override;
  absl::Status Record(Event& event) override;
  absl::Status Synchronize() override;
  void Cancel() override;

 private:
  enum class WorkKind : uint8_t { kAugment, kCopy, kRecord };

  struct Work {
    WorkKind kind;
    bool is_complete;
    bool is_interrupted;  // waits for another run
    const AugmentProgram* program;
    BatchTask batch;
    HostPosition position;
    uint8_t* copy_to;
    const uint8_t* copy_from;
    size_t copy_bytes;
  };

  absl::Status Copy(uint8_t* to, const uint8_t* from, size_t size_bytes);
  // In order, one after the other; all or none.
  absl::Status Submit(absl::Span<const Work> work);
  void Run() override;
  // Not locked. False if the work was interrupted.
  bool RunWork(Work& work) const;

  // These REQUIRE: mutex_ is held.
  Work& At(uint64_t sequence) { return ring_[sequence % kMaxPendingWork]; }
  bool StartNext(uint64_t* sequence);
  // Retires complete work and schedules what that lets run.
  void Advance();
  void Notify(std::unique_lock<std::mutex>& lock);

  HostThreadPool* const pool_;
  const AugmentFunction augment_;
  const std::function<void()> on_done_;
  const std::shared_ptr<HostStreamProgress> progress_;

  std::mutex mutex_;
  std::condition_variable progressed_;
  // Sequences: [*progress_, next_) started, [next_, runnable_) may start,
  // [runnable_, end_) wait. *progress_ is written under mutex_ only.
  uint64_t next_ = 0;
  uint64_t runnable_ = 0;
  uint64_t end_ = 0;
  // Work before this sequence must be complete before more may start.
  uint64_t barrier_ = 0;
  int num_runs_ = 0;  // scheduled or going on
  int num_interrupted_ = 0;
  int max_runs_ = INT32_MAX;  // of the submitting thread
  bool is_cancelled_ = false;
  int num_unnotified_ = 0;  // events done, on_done not called yet
  bool is_notifying_ = false;
  std::array<Work, kMaxPendingWork> ring_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_HOST_HOST_STREAM_H_
