#include "tests/emulated_gpu/kernels/ptx_launch.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/host_ranges.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {
namespace {

using testing::MemoryRange;

template <typename Program>
HostRanges Ranges(const Program& program,
                  const std::vector<MemoryRange>& memory) {
  HostRanges ranges;
  ranges.AddReadable(&program, sizeof(program));
  for (const MemoryRange& range : memory) {
    if (range.size_bytes == 0) continue;
    if (range.may_write) {
      ranges.AddWritable(const_cast<void*>(range.data), range.size_bytes);
    } else {
      ranges.AddReadable(range.data, range.size_bytes);
    }
  }
  return ranges;
}

template <typename Parameters, typename Program>
absl::StatusOr<std::optional<LaunchResult>> Launch(
    const Module& module, LaunchConfig config, absl::string_view name,
    const Parameters& parameters, int64_t num_blocks, int num_threads,
    const Program& program, const std::vector<MemoryRange>& memory) {
  if (num_blocks == 0) return std::optional<LaunchResult>();
  config.grid.x = static_cast<uint32_t>(num_blocks);
  config.block.x = static_cast<uint32_t>(num_threads);
  HostRanges ranges = Ranges(program, memory);
  absl::StatusOr<LaunchResult> result =
      Execute(module, FindKernel(module, name).name, config,
              absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(&parameters),
                                  sizeof(parameters)),
              ranges);
  if (!result.ok()) return result.status();
  return *std::move(result);
}

}  // namespace

absl::StatusOr<std::optional<LaunchResult>> LaunchAugmentKernel(
    const Module& module, LaunchConfig config, const AugmentProgram& program,
    const std::vector<BatchTask>& batches,
    const std::vector<MemoryRange>& memory) {
  const auto device_program = MakeDeviceProgram(program);
  AugmentPlan plan;
  if (!MakeAugmentPlan(device_program.get(), program, batches.data(),
                       static_cast<int>(batches.size()), &plan)) {
    return absl::InvalidArgumentError("no plan for such a program and batches");
  }
  return Launch(module, config, "AugmentKernel", plan, plan.num_blocks(),
                kBlockThreads, *device_program, memory);
}

absl::StatusOr<std::optional<LaunchResult>> LaunchChainKernel(
    const Module& module, LaunchConfig config, const AugmentProgram& program,
    const std::vector<BatchTask>& batches,
    const std::vector<MemoryRange>& memory) {
  if (std::none_of(program.fields, program.fields + program.num_fields,
                   [](const auto& field) { return field.num_steps > 0; })) {
    return std::optional<LaunchResult>();
  }
  ChainParameters parameters = {};
  parameters.program = &program;
  parameters.num_batches = static_cast<int32_t>(batches.size());
  std::copy(batches.begin(), batches.end(), parameters.batches);
  int64_t num_rows = 0;
  for (const BatchTask& batch : batches) num_rows += NumRows(batch);
  return Launch(module, config, "ChainKernel", parameters,
                std::min<int64_t>(num_rows, program.num_teams), kChainThreads,
                program, memory);
}

}  // namespace datasetd::emulated_gpu
