#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/kernels/chain/chain_executor.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/sequence_executor.h"
#include "cuda/kernels/moves/augment_block.h"
#include "cuda/kernels/moves/block_state.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd::testing {
namespace {

// Counts stores.
class CountingSink {
 public:
  explicit CountingSink(StoreCounts* counts) : counts_(counts) {}

  void Store(uint8_t* to, int size_bytes, int64_t index, uint64_t bits) const {
    Count(to + index * size_bytes, size_bytes);
    MemorySink().Store(to, size_bytes, index, bits);
  }

  template <int kWords>
  void StoreVector(uint8_t* to, const uint32_t (&words)[kWords]) const {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(to) % sizeof(words), 0u);
    Count(to, sizeof(words));
    MemorySink().StoreVector(to, words);
  }

  void StoreConsecutive(uint8_t* to, const uint32_t (&words)[kStoredVectors][4],
                        int lane, int num_lanes, OutputVector*) const {
    EXPECT_GT(num_lanes, 0);
    EXPECT_LE(num_lanes, 32);
    if (lane >= num_lanes) return;
    for (int v = 0; v < kStoredVectors; ++v) {
      StoreVector(to + 16 * v, words[v]);
    }
  }

 private:
  void Count(const uint8_t* to, int size_bytes) const {
    auto slot = counts_->upper_bound(to);
    ASSERT_NE(slot, counts_->begin());
    --slot;
    for (int i = 0; i < size_bytes; ++i) {
      ++slot->second.at(static_cast<size_t>(to - slot->first) + i);
    }
  }

  StoreCounts* counts_;
};

// Thread after thread. Shared memory is poisoned, and bounds that the plan
// promises are checked.
void RunEachBlock(const AugmentProgram& program,
                  const std::vector<BatchTask>& batches,
                  const CountingSink& sink) {
  AugmentPlan plan;
  const auto device_program = MakeDeviceProgram(program);
  ASSERT_TRUE(MakeAugmentPlan(device_program.get(), program, batches.data(),
                              static_cast<int>(batches.size()), &plan));
  auto state = std::make_unique<BlockState>();
  for (uint32_t block = 0; block < plan.num_blocks(); ++block) {
    std::memset(static_cast<void*>(state.get()), 0xEE, sizeof(BlockState));
    for (int t = 0; t < kBlockThreads; ++t) LocateBlock(plan, block, t, *state);
    ASSERT_GT(state->work.num_positions, 0);
    if (state->work.is_image) {
      ASSERT_LE(state->work.num_samples, kMaxBlockSamples);
      ASSERT_LE(state->work.num_rows, kMaxBlockRows);
      const FieldPlan& field = plan.fields[state->work.plan_index];
      if (field.has_column_map) {
        ASSERT_LE(state->work.num_samples *
                      program.fields[field.field_index].out_width,
                  kMaxBlockColumns);
      }
    }
    // Backwards, so that no thread may lean on the one before it.
    for (int t = kBlockThreads; t-- > 0;) LoadBlock(plan, t, *state);
    for (int t = kBlockThreads; t-- > 0;) DrawBlock(plan, t, *state);
    for (int t = kBlockThreads; t-- > 0;) MapBlock(plan, t, *state);
    for (int t = kBlockThreads; t-- > 0;) WriteBlock(plan, t, *state, sink);
  }
}

struct ThreadAtomics {
  static void Add(int64_t* to, int64_t value) {
    std::atomic_ref<int64_t>(*to).fetch_add(value);
  }
  static void Add(uint32_t* to, uint32_t value) {
    std::atomic_ref<uint32_t>(*to).fetch_add(value);
  }
  static void Min(uint32_t* to, uint32_t value) {
    std::atomic_ref<uint32_t> ref(*to);
    uint32_t old = ref.load();
    while (value < old && !ref.compare_exchange_weak(old, value)) {
    }
  }
  static void Max(uint32_t* to, uint32_t value) {
    std::atomic_ref<uint32_t> ref(*to);
    uint32_t old = ref.load();
    while (value > old && !ref.compare_exchange_weak(old, value)) {
    }
  }
};

// As the team of a CUDA block.
class ThreadTeam {
 public:
  using Atomics = ThreadAtomics;
  static constexpr int kLanes = 4;
  static constexpr int kGroup = 4;
  static constexpr bool kHasVectors = false;
  static constexpr int64_t kRowElements = INT32_MAX;

  ThreadTeam(int rank, int size, std::barrier<>* barrier)
      : rank_(rank), size_(size), barrier_(barrier) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void Sync() const { barrier_->arrive_and_wait(); }
  static constexpr bool GoesOn() { return true; }

 private:
  int rank_;
  int size_;
  std::barrier<>* barrier_;
};

}  // namespace

bool RunAugmentBlocks(const AugmentProgram& program,
                      const std::vector<BatchTask>& batches,
                      const std::vector<MemoryRange>& memory,
                      StoreCounts* counts) {
  RunEachBlock(program, batches, CountingSink(counts));
  return true;
}

void RunChainBlocks(const AugmentProgram& program, int field_index,
                    const BatchTask& batch,
                    const std::vector<MemoryRange>& memory, int num_ranks,
                    int num_strips) {
  const FieldProgram& field = program.fields[field_index];
  std::barrier<> barrier(num_ranks);
  auto state = std::make_unique<ChainState>();
  std::memset(static_cast<void*>(state.get()), 0xEE, sizeof(ChainState));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const ThreadTeam team(rank, num_ranks, &barrier);
      const ChainMemory memory = TeamMemory(program, field, 0);
      if (!field.is_image) {
        SequenceExecutor<ThreadTeam> executor(team, program, field, memory,
                                              state.get());
        for (int32_t i = 0; i < batch.num_samples; ++i) executor.Run(batch, i);
        return;
      }
      ChainExecutor<ThreadTeam> executor(team, program, field, memory,
                                         state.get());
      for (int32_t i = 0; i < batch.num_samples; ++i) {
        for (int32_t strip = 0; strip < num_strips; ++strip) {
          executor.SetStrip({strip, num_strips});
          executor.Run(batch, i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<int> ChainBlockSizes() { return {1, 5}; }

}  // namespace datasetd::testing
