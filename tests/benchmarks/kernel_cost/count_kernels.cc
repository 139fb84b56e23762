// Runs the kernels' PTX on the workloads of docs/kernel-cost.md and prints what
// it did as JSON: {workload: {counter: number, ...}, ...}. The same numbers on
// every run and machine.
//
//   count_kernels [--lines] [WORKLOAD...]
//   count_kernels --stage         the stage-in kernel, by copy
//   count_kernels --launches      small launches on a GPU of 132 SMs: an array
//
// --lines adds the warp instructions of each line of the source.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/kernel_cost/workloads.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"

namespace datasetd {
namespace {

using Counters = emulated_gpu::Counters;
using json = nlohmann::ordered_json;

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<uint8_t[], Free>;

// As the daemon's memory is.
Memory Allocate(int64_t size_bytes) {
  return Memory(static_cast<uint8_t*>(std::aligned_alloc(
      kScratchAlignment, static_cast<size_t>(AlignScratch(size_bytes + 1)))));
}

// Returns the counts of one kernel.
json ToJson(const Counters& c) {
  json lines = json::object();
  for (const auto& [at, line] : c.by_line) {
    lines[absl::StrCat(at.first, ":", at.second)] = line.warp_instructions;
  }
  json counts = {
      {"blocks", c.blocks},
      {"warp_instructions", c.warp_instructions},
      {"longest_block", c.longest_block},
      {"mean_active_lanes", c.MeanActiveLanes()},
      {"global_lines", c.global_loads.lines + c.global_stores.lines},
      {"global_sectors", c.global_loads.sectors + c.global_stores.sectors},
      {"global_sectors_needed",
       c.global_loads.sectors_needed + c.global_stores.sectors_needed},
      {"store_sectors", c.global_stores.sectors},
      {"store_sectors_needed", c.global_stores.sectors_needed},
      {"shared_wavefronts",
       c.shared_loads.wavefronts + c.shared_stores.wavefronts},
      {"local_words", c.local_loads.words + c.local_stores.words},
      {"barriers", c.barriers},
      {"divergent_branches", c.divergent_branches},
      {"divides",
       c.by_class[static_cast<int>(emulated_gpu::OpClass::kDivide)]}};
  if (!lines.empty()) counts["lines"] = std::move(lines);
  return counts;
}

// `num_strips`: of a sample of a chain.
absl::StatusOr<json> Count(const Workload& workload, bool count_lines,
                           int num_strips = 1) {
  auto compiled = Compile(workload);
  if (!compiled.ok()) return compiled.status();
  const auto read_share = ReadShare(*compiled);
  if (!read_share.ok()) return read_share.status();
  const int64_t num_samples = workload.num_samples;
  const int64_t sample_bytes = compiled->sample_stride_bytes;
  const int64_t source_bytes = sample_bytes * num_samples;
  const Memory source = Allocate(source_bytes);
  std::mt19937 engine(1);
  std::generate_n(source.get(), source_bytes,
                  [&] { return static_cast<uint8_t>(engine()); });

  const auto program = std::make_unique<AugmentProgram>();
  program->seed = 7;
  program->indices_offset_bytes = -1;
  program->num_fields = 1;
  program->fields[0] = *compiled;
  FieldProgram& image = program->fields[0];
  SetSource(source.get(), &image);
  const ScratchPlan plan =
      PlanScratch(*program, workload.num_samples * num_strips);
  const Memory scratch = Allocate(plan.size_bytes);
  plan.Give(scratch.get(), program.get());
  ClearTeamFlags(*program);
  const int channels =
      image.num_steps > 0 ? image.out_channels : image.channels;
  const int32_t num_launched =
      std::max(workload.num_launched, workload.num_samples);
  const int64_t slot_bytes = int64_t{num_launched} * channels *
                             image.out_height * image.out_width *
                             DtypeSizeBytes(image.out_dtype);
  const Memory slot = Allocate(slot_bytes);
  std::vector<int64_t> samples(static_cast<size_t>(num_launched));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<int64_t>(i) % num_samples;
  }
  const BatchTask batch = {.slot = slot.get(),
                           .indices = samples.data(),
                           .num_samples = num_launched};
  const std::vector<testing::MemoryRange> memory = {
      {source.get(), source_bytes, false},
      {samples.data(), static_cast<int64_t>(8 * samples.size()), false},
      {scratch.get(), plan.size_bytes, true},
      {slot.get(), slot_bytes, true},
  };
  emulated_gpu::LaunchConfig config;
  config.check_races = false;
  config.check_uninitialised = false;
  config.count_accesses = true;
  config.count_lines = count_lines;
  json result = {{"samples", num_samples},
                 {"pixels_per_sample", image.out_height * image.out_width},
                 {"bytes_in_per_sample", *read_share * sample_bytes},
                 {"bytes_out_per_sample", slot_bytes / num_launched},
                 {"kernels", json::object()}};
  const auto add = [&](const char* name, const auto& launched) -> absl::Status {
    if (!launched.ok()) return launched.status();
    if (!launched->has_value()) return absl::OkStatus();
    if ((*launched)->fault.has_value()) {
      return absl::InternalError((*launched)->fault->ToString());
    }
    result["kernels"][name] = ToJson((*launched)->counters);
    return absl::OkStatus();
  };
  const emulated_gpu::Module& module = emulated_gpu::AugmentModule();
  absl::Status status =
      add(image.is_image ? "ChainKernel" : "SequenceKernel",
          emulated_gpu::LaunchChainKernel(module, config, *program, {batch},
                                          memory, std::nullopt, num_strips));
  AugmentPlan augment;
  if (!MakeAugmentPlan(nullptr, *program, &batch, 1, &augment)) {
    return absl::InternalError("no plan");
  }
  // Those of the first samples.
  const double counted = static_cast<double>(augment.num_blocks()) *
                         workload.num_samples / num_launched;
  result["launched_blocks"] = augment.num_blocks();
  if (status.ok()) {
    status =
        add("AugmentKernel", emulated_gpu::LaunchAugmentKernel(
                                 module, config, *program, {batch}, memory,
                                 static_cast<int64_t>(std::ceil(counted))));
  }
  if (!status.ok()) return status;
  return result;
}

// Of a GPU as the H100 and H200 are.
constexpr int kMultiprocessors = 132;

// What the blocks of small launches do, with as many blocks as run at once and,
// for comparison, with one for each sample of a chain.
absl::StatusOr<json> CountLaunches(const Workload& workload) {
  json rows = json::array();
  auto compiled = Compile(workload);
  if (!compiled.ok()) return compiled.status();
  const auto program = std::make_unique<AugmentProgram>();
  program->indices_offset_bytes = -1;
  program->num_fields = 1;
  program->fields[0] = *compiled;
  const bool is_chain = compiled->num_steps > 0;
  program->num_teams = kResidentChainThreads /
                       ChainThreads(TeamScratchBytes(*program)) *
                       kMultiprocessors;
  const char* const kernel = is_chain ? "ChainKernel" : "AugmentKernel";
  std::map<int, json> by_strips;
  for (const int launched : {32, 64, 128, 256, 512}) {
    const BatchTask batch = {.num_samples = launched};
    Workload counted = workload;
    int64_t blocks[2] = {};
    int strips[2] = {1, 1};
    if (is_chain) {
      ChainPlan plan;
      blocks[1] = MakeChainPlan(nullptr, *program, &batch, 1, &plan);
      blocks[0] = std::min(launched, program->num_teams);
      strips[1] = plan.num_strips[0];
    } else {
      counted.num_launched = launched;
      counted.num_samples = std::min(counted.num_samples, launched);
      by_strips.clear();
    }
    json row = {{"workload", workload.name}, {"samples", launched}};
    for (int i = 0; i < 2; ++i) {
      if (!by_strips.contains(strips[i])) {
        auto count = Count(counted, false, strips[i]);
        if (!count.ok()) return count.status();
        by_strips[strips[i]] = *std::move(count);
      }
      const json& count = by_strips[strips[i]];
      const json& counts = count["kernels"][kernel];
      const auto instructions = counts["warp_instructions"].get<double>();
      if (!is_chain) blocks[i] = count["launched_blocks"];
      const double units =
          is_chain ? 1.0 * launched * strips[i] : 1.0 * blocks[i];
      row["blocks"].push_back(blocks[i]);
      row["warp_instructions_a_sample"].push_back(
          is_chain ? instructions / counted.num_samples
                   : instructions / counts["blocks"].get<double>() * blocks[i] /
                         launched);
      row["longest_block"].push_back(counts["longest_block"].get<double>() *
                                     std::ceil(units / blocks[i]));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

int MainOfLaunches() {
  json all = json::array();
  for (const Workload& workload : CostWorkloads()) {
    if (workload.name != "flip-normalize-half-nhwc" &&
        workload.name != "cifar-reflect-crop-flip" &&
        workload.name != "random-resized-crop" &&
        workload.name != "resize-512" && workload.name != "rotation-bilinear" &&
        workload.name != "color-jitter") {
      continue;
    }
    const auto rows = CountLaunches(workload);
    if (!rows.ok()) {
      std::cerr << workload.name << ": " << rows.status() << "\n";
      return 1;
    }
    all.insert(all.end(), rows->begin(), rows->end());
  }
  std::cout << all.dump(1) << "\n";
  return 0;
}

// Counts the stage-in kernel for 16 samples, `shift` bytes behind a word.
absl::StatusOr<json> CountStage(int64_t sample_bytes, int64_t shift) {
  constexpr int kSamples = 16;
  const int64_t place_bytes =
      (sample_bytes + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
  const int64_t source_bytes = place_bytes + kStageAlignment;
  const Memory source = Allocate(kSamples * source_bytes);
  const Memory places = Allocate(kSamples * place_bytes);
  std::vector<StageCopy> copies;
  for (int i = 0; i < kSamples; ++i) {
    for (int64_t at = 0; at < sample_bytes; at += kStagePieceBytes) {
      copies.push_back(
          {.from = source.get() + i * source_bytes + shift + at,
           .to = places.get() + i * place_bytes + at,
           .size_bytes = std::min(kStagePieceBytes, sample_bytes - at)});
    }
  }
  emulated_gpu::LaunchConfig config;
  config.check_races = false;
  config.check_uninitialised = false;
  config.count_accesses = true;
  const auto launched = emulated_gpu::LaunchStageKernel(
      emulated_gpu::AugmentModule(), config, 4, copies,
      {{source.get(), kSamples * source_bytes, false},
       {places.get(), kSamples * place_bytes, true}});
  if (!launched.ok()) return launched.status();
  if ((*launched)->fault.has_value()) {
    return absl::InternalError((*launched)->fault->ToString());
  }
  json result = ToJson((*launched)->counters);
  result["bytes"] = kSamples * sample_bytes;
  return result;
}

int MainOfStage() {
  json all = json::object();
  for (const auto& [name, bytes, shift] :
       {std::tuple("cifar-10", int64_t{3072}, int64_t{0}),
        std::tuple("imagenet-224", int64_t{150'528}, int64_t{0}),
        std::tuple("unaligned-333", int64_t{332'667}, int64_t{5}),
        std::tuple("label", int64_t{8}, int64_t{8})}) {
    const auto counted = CountStage(bytes, shift);
    if (!counted.ok()) {
      std::cerr << name << ": " << counted.status() << "\n";
      return 1;
    }
    all[name] = *counted;
  }
  std::cout << all.dump(1) << "\n";
  return 0;
}

int Main(std::vector<std::string> names) {
  if (names == std::vector<std::string>{"--stage"}) return MainOfStage();
  if (names == std::vector<std::string>{"--launches"}) return MainOfLaunches();
  const bool count_lines = std::erase(names, "--lines") > 0;
  const std::vector<Workload> workloads = CostWorkloads();
  const auto is_named = [&](const std::string& name) {
    return names.empty() ||
           std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : names) {
    if (std::none_of(workloads.begin(), workloads.end(),
                     [&](const Workload& w) { return w.name == name; })) {
      std::cerr << "no workload " << name << "\n";
      return 2;
    }
  }
  json all = json::object();
  for (const Workload& workload : workloads) {
    if (!is_named(workload.name)) continue;
    const auto counted = Count(workload, count_lines);
    if (!counted.ok()) {
      std::cerr << workload.name << ": " << counted.status() << "\n";
      return 1;
    }
    all[workload.name] = *counted;
  }
  std::cout << all.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) {
  return datasetd::Main({argv + 1, argv + argc});
}
