#include "tests/cuda/kernels/chain_runner.h"

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "cuda/dtype.h"
#include "cuda/kernels/augment.h"
#include "cuda/kernels/chain_executor.h"
#include "cuda/kernels/chain_host.h"
#include "cuda/kernels/chain_scratch.h"
#include "cuda/kernels/chain_state.h"
#include "gtest/gtest.h"

namespace datasetd::testing {
namespace {

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

// As the team of a CUDA block, one pixel at a time.
class ThreadTeam {
 public:
  using Atomics = ThreadAtomics;
  static constexpr int kLanes = 1;
  static constexpr int kGroup = 1;
  static constexpr int64_t kRowElements = INT32_MAX;
  static constexpr bool kTakesRowsInTurn = false;

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

void RunChainByRanks(const AugmentProgram& program, int field_index,
                     const BatchTask& batch, int num_ranks) {
  const FieldProgram& field = program.fields[field_index];
  std::barrier<> barrier(num_ranks);
  auto state = std::make_unique<ChainState>();
  std::memset(static_cast<void*>(state.get()), 0xEE, sizeof(ChainState));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ChainExecutor<ThreadTeam> executor(
          ThreadTeam(rank, num_ranks, &barrier), program, field,
          TeamMemory(program, field, 0), state.get());
      for (int32_t i = 0; i < batch.num_samples; ++i) executor.Run(batch, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> ChainResult::Floats(const FieldProgram& field) const {
  std::vector<float> values(bytes.size() / DtypeSizeBytes(field.out_dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (field.out_dtype == Dtype::kUint8) {
      values[i] = bytes[i];
    } else {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    }
  }
  return values;
}

ChainRunner::ChainRunner(const FieldProgram& field, std::vector<uint8_t> image,
                         uint64_t seed)
    : image_(std::move(image)) {
  program_.seed = seed;
  program_.indices_offset_bytes = -1;
  program_.num_fields = 1;
  program_.fields[0] = field;
  program_.fields[0].source = image_.data();
  program_.fields[0].sample_stride_bytes = 0;
}

ChainRunner::ChainRunner(const FieldProgram& field, std::vector<uint8_t> packed,
                         std::vector<RaggedSample> ragged, uint64_t seed)
    : ChainRunner(field, std::move(packed), seed) {
  ragged_ = std::move(ragged);
  program_.fields[0].ragged = ragged_.data();
}

template <typename Run>
ChainResult ChainRunner::With(uint64_t epoch,
                              const std::vector<int64_t>& samples,
                              const Run& run) const {
  auto program = std::make_unique<AugmentProgram>(program_);
  const FieldProgram& field = program->fields[0];
  const ScratchPlan plan = PlanScratch(*program, 1);
  // What is read before it is written shows: NaN.
  std::vector<uint8_t> scratch(plan.size_bytes + kScratchAlignment, 0xFF);
  const uintptr_t start = reinterpret_cast<uintptr_t>(scratch.data());
  plan.Give(scratch.data() +
                (AlignScratch(static_cast<int64_t>(start)) -
                 static_cast<int64_t>(start)),
            program.get());
  ClearTeamFlags(*program);
  const size_t size_bytes = samples.size() * field.out_height *
                            field.out_width * field.out_channels *
                            DtypeSizeBytes(field.out_dtype);
  // Aligned as slots are, so that stores may go past the caches.
  std::vector<uint8_t> slot(size_bytes + 255);
  BatchTask batch = {};
  batch.slot = reinterpret_cast<uint8_t*>(
      (reinterpret_cast<uintptr_t>(slot.data()) + 255) & ~uintptr_t{255});
  batch.indices = samples.data();
  batch.num_samples = static_cast<int32_t>(samples.size());
  batch.epoch = epoch;
  run(*program, batch);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ChainResult result;
  result.bytes.assign(batch.slot, batch.slot + size_bytes);
  return result;
}

ChainResult ChainRunner::Host(uint64_t epoch, int64_t sample) const {
  return Host(epoch, std::vector<int64_t>{sample});
}

ChainResult ChainRunner::Host(uint64_t epoch,
                              const std::vector<int64_t>& samples) const {
  return With(epoch, samples,
              [](const AugmentProgram& program, const BatchTask& batch) {
                AugmentHost(program, batch);
              });
}

ChainResult ChainRunner::Plain(uint64_t epoch, int64_t sample) const {
  return With(epoch, {sample},
              [](const AugmentProgram& program, const BatchTask& batch) {
                RunChainPlain(program, program.fields[0], batch,
                              TeamMemory(program, program.fields[0], 0));
              });
}

ChainResult ChainRunner::Avx2(uint64_t epoch, int64_t sample) const {
  return With(epoch, {sample},
              [](const AugmentProgram& program, const BatchTask& batch) {
                RunChainAvx2(program, program.fields[0], batch,
                           TeamMemory(program, program.fields[0], 0));
              });
}

ChainResult ChainRunner::Avx512(uint64_t epoch, int64_t sample) const {
  return With(epoch, {sample},
              [](const AugmentProgram& program, const BatchTask& batch) {
                RunChainAvx512(program, program.fields[0], batch,
                           TeamMemory(program, program.fields[0], 0));
              });
}

ChainResult ChainRunner::Ranks(int num_ranks, uint64_t epoch,
                               int64_t sample) const {
  return With(epoch, {sample},
              [&](const AugmentProgram& program, const BatchTask& batch) {
                RunChainByRanks(program, 0, batch, num_ranks);
              });
}

ChainResult ChainRunner::All(uint64_t epoch, int64_t sample) const {
  const ChainResult host = Host(epoch, sample);
  EXPECT_EQ(host.bytes, Plain(epoch, sample).bytes) << "plain";
  if (HasChainAvx2()) {
    EXPECT_EQ(host.bytes, Avx2(epoch, sample).bytes) << "AVX2";
  }
  if (HasChainAvx512()) {
    EXPECT_EQ(host.bytes, Avx512(epoch, sample).bytes) << "AVX-512";
  }
  EXPECT_EQ(host.bytes, Ranks(1, epoch, sample).bytes) << "one rank";
  EXPECT_EQ(host.bytes, Ranks(5, epoch, sample).bytes) << "five ranks";
  return host;
}

}  // namespace datasetd::testing
