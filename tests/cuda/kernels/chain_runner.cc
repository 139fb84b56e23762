#include "tests/cuda/kernels/chain_runner.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/host/chain_host.h"
#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/augment.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd::testing {
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
  UseOwnNoise();
}

ChainRunner::ChainRunner(const FieldProgram& field, std::vector<uint8_t> packed,
                         std::vector<RaggedSample> ragged, uint64_t seed)
    : ChainRunner(field, std::move(packed), seed) {
  ragged_ = std::move(ragged);
  program_.fields[0].ragged = ragged_.data();
  UseOwnNoise();
}

void ChainRunner::UseOwnNoise() {
  FieldProgram& field = program_.fields[0];
  for (int s = 0; s < field.num_steps; ++s) {
    if (field.steps[s].kind != StepKind::kAddNoise) continue;
    auto noise = ParamsAs<AddNoiseParams>(field.steps[s]);
    noise.source = image_.data();
    noise.ragged = noise.sample_steps > 0 ? nullptr : ragged_.data();
    SetParams(noise, &field.steps[s]);
  }
}

template <typename Run>
ChainResult ChainRunner::With(uint64_t epoch,
                              const std::vector<int64_t>& samples,
                              const Run& run, int num_teams) const {
  auto program = std::make_unique<AugmentProgram>(program_);
  const FieldProgram& field = program->fields[0];
  const ScratchPlan plan = PlanScratch(*program, num_teams);
  // NaNs show that memory is read before it is written.
  std::vector<uint8_t> scratch(plan.size_bytes + kScratchAlignment, 0xFF);
  const uintptr_t start = reinterpret_cast<uintptr_t>(scratch.data());
  plan.Give(scratch.data() + (AlignScratch(static_cast<int64_t>(start)) -
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
  const std::vector<MemoryRange> memory = {
      {image_.data(), static_cast<int64_t>(image_.size()), false},
      {ragged_.data(), static_cast<int64_t>(16 * ragged_.size()), false},
      {samples.data(), static_cast<int64_t>(8 * samples.size()), false},
      {program->scratch, plan.size_bytes, true},
      {batch.slot, static_cast<int64_t>(size_bytes), true},
  };
  run(*program, batch, memory);
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
  return With(
      epoch, samples,
      [](const AugmentProgram& program, const BatchTask& batch,
         const std::vector<MemoryRange>&) { AugmentHost(program, batch); });
}

ChainResult ChainRunner::On(HostTarget target, uint64_t epoch,
                            int64_t sample) const {
  return With(epoch, {sample},
              [&](const AugmentProgram& program, const BatchTask& batch,
                  const std::vector<MemoryRange>&) {
                RunChainOn(target, program, program.fields[0], batch,
                           TeamMemory(program, program.fields[0], 0));
              });
}

ChainResult ChainRunner::Ranks(int num_ranks, uint64_t epoch,
                               int64_t sample) const {
  return Ranks(num_ranks, epoch, std::vector<int64_t>{sample});
}

ChainResult ChainRunner::Ranks(int num_ranks, uint64_t epoch,
                               const std::vector<int64_t>& samples,
                               int num_strips) const {
  return With(
      epoch, samples,
      [&](const AugmentProgram& program, const BatchTask& batch,
          const std::vector<MemoryRange>& memory) {
        RunChainBlocks(program, 0, batch, memory, num_ranks, num_strips);
      },
      num_strips);
}

ChainResult ChainRunner::All(uint64_t epoch, int64_t sample) const {
  const ChainResult host = Host(epoch, sample);
  for (const HostTarget target : HostTargets()) {
    EXPECT_EQ(host.bytes, On(target, epoch, sample).bytes)
        << HostTargetName(target);
  }
  for (const int num_ranks : ChainBlockSizes()) {
    EXPECT_EQ(host.bytes, Ranks(num_ranks, epoch, sample).bytes)
        << num_ranks << " ranks";
  }
  // With empty ones, if there are fewer rows.
  constexpr int kStrips = 3;
  EXPECT_EQ(host.bytes,
            Ranks(ChainBlockSizes().back(), epoch, {sample}, kStrips).bytes)
      << kStrips << " strips";
  return host;
}

}  // namespace datasetd::testing
