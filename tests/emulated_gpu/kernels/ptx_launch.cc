#include "tests/emulated_gpu/kernels/ptx_launch.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/host_ranges.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {
namespace {

using testing::MemoryRange;

// Adds the parts of the chains' scratch memory, each with the size that its
// field has planned, so that what leaves a part is found.
void AddScratch(const AugmentProgram& program, HostRanges* ranges) {
  struct Part {
    uint8_t* end = nullptr;       // of what is written
    uint8_t* read_end = nullptr;  // of what is read
  };
  std::map<uint8_t*, Part> parts;  // fields share the memory of a team
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    if (field.num_steps == 0) continue;
    const ChainScratch& scratch = field.scratch;
    for (int team = 0; team < program.num_teams; ++team) {
      const ChainMemory memory = TeamMemory(program, field, team);
      const auto add = [&](void* data, int64_t elements, int64_t beyond) {
        if (elements == 0) return;
        auto* const begin = static_cast<uint8_t*>(data);
        Part& part = parts[begin];
        part.end = std::max(part.end, begin + 4 * elements);
        part.read_end =
            std::max(part.read_end, begin + 4 * (elements + beyond));
      };
      add(memory.image[0], scratch.image_elements[0], kReadBeyondElements);
      add(memory.image[1], scratch.image_elements[1], kReadBeyondElements);
      add(memory.rows, scratch.row_elements, kReadBeyondElements);
      if (!field.is_image) add(memory.line, scratch.line_elements, 0);
      add(memory.weights, scratch.tap_elements, 0);
      add(memory.indices, scratch.tap_elements, 0);
      add(memory.map, scratch.map_elements, 0);
      add(memory.partner, scratch.partner_elements, 0);
    }
  }
  uint8_t* begin = nullptr;
  Part united;
  const auto add = [&] {
    if (united.end != begin) ranges->AddWritable(begin, united.end - begin);
    if (united.read_end > united.end) {
      ranges->AddReadable(united.end, united.read_end - united.end);
    }
  };
  for (const auto& [data, part] : parts) {
    if (data >= united.end) {
      add();
      begin = data;
      united = {};
    }
    united.end = std::max(united.end, part.end);
    united.read_end = std::max(united.read_end, part.read_end);
  }
  add();
}

template <typename Program>
HostRanges Ranges(const Program& program,
                  const std::vector<MemoryRange>& memory) {
  HostRanges ranges;
  ranges.AddReadable(&program, sizeof(program));
  for (const MemoryRange& range : memory) {
    if (range.size_bytes == 0) continue;
    if (range.data == program.scratch) {
      AddScratch(program, &ranges);
      continue;
    }
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
    const std::vector<MemoryRange>& memory, int64_t max_blocks) {
  const auto device_program = MakeDeviceProgram(program);
  AugmentPlan plan;
  if (!MakeAugmentPlan(device_program.get(), program, batches.data(),
                       static_cast<int>(batches.size()), &plan)) {
    return absl::InvalidArgumentError("no plan for such a program and batches");
  }
  return Launch(module, config, "AugmentKernel", plan,
                std::min<int64_t>(plan.num_blocks(), max_blocks), kBlockThreads,
                *device_program, memory);
}

absl::StatusOr<std::optional<LaunchResult>> LaunchChainKernel(
    const Module& module, LaunchConfig config, const AugmentProgram& program,
    const std::vector<BatchTask>& batches,
    const std::vector<MemoryRange>& memory, std::optional<int> num_threads,
    std::optional<int> num_strips) {
  ChainPlan plan;
  int64_t num_blocks = MakeChainPlan(&program, program, batches.data(),
                                     static_cast<int>(batches.size()), &plan);
  if (num_strips.has_value()) {
    std::fill_n(plan.num_strips, kMaxFields, *num_strips);
    num_blocks = std::min<int64_t>(num_blocks * *num_strips, program.num_teams);
  }
  absl::StatusOr<std::optional<LaunchResult>> result =
      std::optional<LaunchResult>();
  for (const bool is_image : {false, true}) {
    const bool has_chain =
        std::any_of(program.fields, program.fields + program.num_fields,
                    [&](const FieldProgram& field) {
                      return field.num_steps > 0 && field.is_image == is_image;
                    });
    if (!has_chain) continue;
    result =
        Launch(module, config, is_image ? "ChainKernel" : "SequenceKernel",
               plan, num_blocks,
               num_threads.value_or(ChainThreads(program.team_scratch_bytes)),
               program, memory);
    if (!result.ok() || !result->has_value() || (*result)->fault.has_value()) {
      break;
    }
  }
  return result;
}

absl::StatusOr<std::optional<LaunchResult>> LaunchStageKernel(
    const Module& module, LaunchConfig config, int num_blocks,
    const std::vector<StageCopy>& copies,
    const std::vector<MemoryRange>& memory) {
  const StagePlan plan = {.copies = copies.data(),
                          .num_copies = static_cast<int64_t>(copies.size())};
  std::vector<MemoryRange> ranges = memory;
  ranges.push_back({copies.data(),
                    static_cast<int64_t>(copies.size() * sizeof(StageCopy)),
                    false});
  const AugmentProgram none = {};
  return Launch(module, config, "StageKernel", plan, num_blocks, kStageThreads,
                none, ranges);
}

}  // namespace datasetd::emulated_gpu
