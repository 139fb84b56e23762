// The kernel engine of libcuda.so.1: the PTX executor.

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/emulated_gpu/driver/kernel_engine.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_driver {
namespace {

using ::datasetd::emulated_gpu::FaultKind;
using ::datasetd::emulated_gpu::FunctionInfo;
using ::datasetd::emulated_gpu::LaunchConfig;

// Returns the error that a GPU would report. A fault that it would not notice
// is a failed launch: a test must not pass over it.
CUresult ResultOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kInvalidAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::kInstructionBudget:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

KernelInfo InfoOf(const FunctionInfo& entry, int64_t callee_local_bytes) {
  KernelInfo info;
  info.name = entry.name;
  for (const auto& parameter : entry.parameters) {
    info.parameters.push_back(
        {.offset_bytes = static_cast<uint32_t>(parameter.offset_bytes),
         .size_bytes = static_cast<uint32_t>(parameter.size_bytes)});
  }
  info.shared_bytes = static_cast<uint32_t>(entry.static_shared_bytes);
  info.local_bytes =
      static_cast<uint32_t>(entry.local_bytes + callee_local_bytes);
  info.max_threads = static_cast<uint32_t>(entry.max_threads);
  return info;
}

class PtxModule final : public KernelModule {
 public:
  explicit PtxModule(emulated_gpu::Module module)
      : module_(std::move(module)),
        variables_(emulated_gpu::ModuleVariables(module_)) {
    // Which functions a kernel calls is not told: each might be on its stack.
    int64_t callee_local_bytes = 0;
    for (const FunctionInfo& function : module_.functions()) {
      if (!function.is_entry) callee_local_bytes += function.local_bytes;
    }
    for (const FunctionInfo& function : module_.functions()) {
      if (function.is_entry) {
        kernels_.push_back(InfoOf(function, callee_local_bytes));
      }
    }
  }

  const std::vector<KernelInfo>& kernels() const override { return kernels_; }

  KernelOutcome Launch(const std::string& kernel, const KernelLaunch& launch,
                       emulated_gpu::AddressSpace& memory) const override {
    LaunchConfig config;
    config.grid = {launch.grid[0], launch.grid[1], launch.grid[2]};
    config.block = {launch.block[0], launch.block[1], launch.block[2]};
    config.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    // The module's variables are one copy: its launches take turns.
    std::unique_lock<std::mutex> lock(variables_mutex_, std::defer_lock);
    if (!variables_.empty()) {
      lock.lock();
      config.module_variables = absl::MakeSpan(variables_);
    }
    const auto result = emulated_gpu::Execute(module_, kernel, config,
                                              launch.parameters, memory);
    if (!result.ok()) {
      return {CUDA_ERROR_LAUNCH_FAILED, result.status().ToString()};
    }
    if (!result->fault.has_value()) return {};
    return {ResultOf(result->fault->kind), result->fault->ToString()};
  }

 private:
  const emulated_gpu::Module module_;
  std::vector<KernelInfo> kernels_;
  mutable std::mutex variables_mutex_;
  mutable std::vector<uint8_t> variables_;
};

// Parsed, what was parsed last: programs load the same image again and again,
// and ours has some 160,000 lines.
absl::StatusOr<emulated_gpu::Module> Parse(const std::string& ptx) {
  static std::mutex mutex;
  static std::pair<std::string, std::optional<emulated_gpu::Module>> last;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!last.second.has_value() || last.first != ptx) {
    auto module = emulated_gpu::Module::Parse(ptx);
    if (!module.ok()) return module.status();
    last = {ptx, *std::move(module)};
  }
  return *last.second;
}

}  // namespace

std::shared_ptr<const KernelModule> LoadKernels(const std::string& ptx,
                                                std::string* why) {
  auto module = Parse(ptx);
  if (!module.ok()) {
    *why = module.status().ToString();
    return nullptr;
  }
  return std::make_shared<PtxModule>(*std::move(module));
}

}  // namespace datasetd::emulated_driver
