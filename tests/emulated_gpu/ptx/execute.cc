#include "tests/emulated_gpu/ptx/execute.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/block_runner.h"
#include "tests/emulated_gpu/ptx/module_code.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

// CUDA C++ Programming Guide, "Compute Capabilities": threads of a block, and
// shared memory of a block of compute capability 9.0.
constexpr uint64_t kMaxThreads = 1024;
constexpr int64_t kMaxSharedBytes = 227 * 1024;

// A block that ended badly; the one with the lowest number counts.
class Outcome {
 public:
  void Report(uint64_t block, absl::StatusOr<std::optional<Fault>> result) {
    if (result.ok() && !result->has_value()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (block >= first_.load()) return;
    first_ = block;
    result_ = std::move(result);
  }

  // Whether a block before this one has ended badly.
  bool IsStopped(uint64_t block) const { return first_.load() < block; }
  absl::StatusOr<std::optional<Fault>> Take() { return std::move(result_); }

 private:
  std::mutex mutex_;
  std::atomic<uint64_t> first_{~uint64_t{0}};
  absl::StatusOr<std::optional<Fault>> result_ = std::optional<Fault>();
};

absl::Status CheckConfig(const FunctionCode& kernel, const LaunchConfig& config,
                         size_t parameter_bytes, int64_t shared_bytes) {
  if (parameter_bytes != static_cast<size_t>(kernel.parameter_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.name, " takes ", kernel.parameter_bytes,
                     " bytes of parameters, not ", parameter_bytes));
  }
  const uint64_t threads = config.block.Count();
  const uint64_t most =
      kernel.max_threads > 0
          ? std::min<uint64_t>(kernel.max_threads, kMaxThreads)
          : kMaxThreads;
  if (threads == 0 || threads > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.name, ": a block of ", threads,
                     " threads; 1 to ", most, " are possible"));
  }
  if (config.grid.Count() == 0 || config.grid.Count() > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel ", kernel.name, ": a grid of ",
                     config.grid.Count(), " blocks"));
  }
  if (config.dynamic_shared_bytes < 0 || shared_bytes > kMaxSharedBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "kernel ", kernel.name, ": ", shared_bytes,
        " bytes of shared memory; at most ", kMaxSharedBytes, " are possible"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<uint8_t> ModuleVariables(const Module& module) {
  return module.code().variables;
}

absl::StatusOr<LaunchResult> Execute(const Module& module,
                                     absl::string_view kernel,
                                     const LaunchConfig& config,
                                     absl::Span<const uint8_t> parameters,
                                     AddressSpace& memory) {
  const ModuleCode& code = module.code();
  const auto found = code.by_name.find(std::string(kernel));
  if (found == code.by_name.end() || !code.functions[found->second].is_entry) {
    return absl::NotFoundError(absl::StrCat("no kernel ", kernel));
  }
  LaunchState launch;
  launch.module = &code;
  launch.kernel = &code.functions[found->second];
  launch.config = &config;
  launch.parameters = parameters;
  launch.memory = &memory;
  launch.static_shared_bytes = launch.kernel->static_shared_bytes;
  if (config.dynamic_shared_bytes > 0) {
    launch.static_shared_bytes = (launch.static_shared_bytes + 15) / 16 * 16;
  }
  if (absl::Status status =
          CheckConfig(*launch.kernel, config, parameters.size(),
                      launch.static_shared_bytes + config.dynamic_shared_bytes);
      !status.ok()) {
    return status;
  }
  std::vector<uint8_t> fresh;
  launch.module_variables = config.module_variables;
  if (launch.module_variables.empty()) {
    fresh = ModuleVariables(module);
    launch.module_variables = absl::MakeSpan(fresh);
  } else if (launch.module_variables.size() != code.variables.size()) {
    return absl::InvalidArgumentError("module_variables of another module");
  }

  const uint64_t num_blocks = config.grid.Count();
  std::atomic<int64_t> budget(static_cast<int64_t>(
      std::min<uint64_t>(config.max_warp_instructions, INT64_MAX / 2)));
  std::atomic<uint64_t> next(0);
  Outcome outcome;
  const int num_threads = static_cast<int>(
      std::clamp<uint64_t>(config.num_host_threads, 1, num_blocks));
  std::vector<std::unique_ptr<BlockRunner>> runners;
  for (int i = 0; i < num_threads; ++i) {
    runners.push_back(std::make_unique<BlockRunner>(&launch, &budget));
  }
  const auto work = [&](BlockRunner* runner) {
    for (uint64_t block = next++; block < num_blocks; block = next++) {
      if (outcome.IsStopped(block)) return;
      outcome.Report(block, runner->Run(block));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) {
    threads.emplace_back(work, runners[i].get());
  }
  work(runners[0].get());
  for (std::thread& thread : threads) thread.join();

  absl::StatusOr<std::optional<Fault>> fault = outcome.Take();
  if (!fault.ok()) return fault.status();
  LaunchResult result;
  result.fault = *std::move(fault);
  for (const auto& runner : runners) runner->AddCounts(&result.counters);
  return result;
}

}  // namespace datasetd::emulated_gpu
