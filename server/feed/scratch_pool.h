// Scratch memory of the op chains of a device's feeds.
//
// Only chains that run need it. Those of all feeds run one after another, on a
// stream of the pool's, so that feeds share it: one block of memory for all
// whose chains want as much, in powers of two. A block is taken from the memory
// budget, once, when the first of its feeds is opened, and given back when the
// last is gone: no launch ever waits for memory, and none can fail for lack of
// it. Moves without chains need no scratch, and run beside.
//
// A block is large enough for every team of the device (Backend::max_teams),
// within a quarter of the budget for all blocks together. Where so much is not
// free it is smaller, and fewer teams run; LeastBytes are enough to open a
// feed.
//
// Only for devices with streams of their own order: on the host, threads take
// turns within chains, and each feed has memory of its own.

#ifndef DATASETD_SERVER_FEED_SCRATCH_POOL_H_
#define DATASETD_SERVER_FEED_SCRATCH_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "server/dataset/memory_budget.h"

namespace datasetd {

class ScratchPool {
 private:
  struct Block {
    Reservation reservation;
    std::unique_ptr<DeviceMemory> memory;  // goes before its reservation
  };

 public:
  // Gives a feed the use of a block, and names the stream that its launches go
  // to. Destroying the last lease of a block frees the block, and may wait for
  // the device.
  class Lease {
   public:
    Lease() = default;
    bool has_value() const { return block_ != nullptr; }
    // Stores the memory in the program.
    void Give(AugmentProgram* program) const {
      plan_.Give(block_->memory->data(), program);
    }
    int num_teams() const { return plan_.num_teams; }
    // The most teams that the device runs at once for such samples.
    int max_teams() const { return max_teams_; }
    // The pool's; for the producer's thread.
    Stream* stream() const { return stream_; }

   private:
    friend class ScratchPool;
    std::shared_ptr<const Block> block_;
    ScratchPlan plan_;
    int max_teams_ = 0;
    Stream* stream_ = nullptr;
  };

  // `on_done` as for Backend::CreateStream. The others outlive the pool.
  static absl::StatusOr<std::unique_ptr<ScratchPool>> Create(
      Backend* backend, MemoryBudget* budget, std::function<void()> on_done);

  // REQUIRES: no lease exists.
  ~ScratchPool() = default;
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Leases scratch memory for chains whose teams take `team_bytes` each; empty
  // if that is 0. A new block is charged to `uid` as `what`, outside the user's
  // limit, since other users' feeds may come to share it.
  //   RESOURCE_EXHAUSTED  less than LeastBytes is free; names the bytes
  absl::StatusOr<Lease> Take(int64_t team_bytes, uid_t uid,
                             absl::string_view what,
                             const MemoryBudget::Terms& terms);

  // The bytes that must be free for Take: 0 if a block is there.
  int64_t MissingBytes(int64_t team_bytes);

  struct Sizes {
    int64_t least = 0;
    int64_t best = 0;
  };
  // The sizes that a block may have: all powers of two between these, or, if
  // that overflows, the largest number.
  static Sizes SizesFor(int64_t team_bytes, int max_teams,
                        uint64_t budget_bytes);
  // Divides a block among as many teams as fit. REQUIRES: one team fits.
  static ScratchPlan PlanBlock(int64_t team_bytes, int max_teams,
                               int64_t block_bytes);

 private:
  ScratchPool(Backend* backend, MemoryBudget* budget,
              std::unique_ptr<Stream> stream)
      : backend_(backend), budget_(budget), stream_(std::move(stream)) {}
  std::shared_ptr<const Block> Find(int64_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if the pool has its share of the budget.
  absl::StatusOr<std::shared_ptr<const Block>> Make(
      int64_t size_bytes, uid_t uid, absl::string_view what,
      const MemoryBudget::Terms& terms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t UsedBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Backend* const backend_;
  MemoryBudget* const budget_;
  const std::unique_ptr<Stream> stream_;
  Mutex mutex_;
  // By size.
  std::map<int64_t, std::weak_ptr<const Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SCRATCH_POOL_H_
