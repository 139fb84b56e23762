#include "server/devices/device_config.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/backends.h"
#include "cuda/device/cuda_backend.h"
#include "server/config/user_limit.h"
#include "server/dataset/memory_budget.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

// Share of the memory that is free at start, if no budget is configured.
constexpr double kDefaultBudgetShare = 0.9;

// The configured devices; by default every GPU, or the host if there is none.
absl::StatusOr<std::vector<std::string>> DeviceNames(const v1::Config& config) {
  std::vector<std::string> names(config.devices().begin(),
                                 config.devices().end());
  if (!names.empty()) return names;
  const absl::StatusOr<int> num_gpus = CountCudaDevices();
  if (!num_gpus.ok()) {
    Log(LogSubsystem::kServer)
        .warn("no GPU ({}): serving from host memory",
              std::string(num_gpus.status().message()));
    return std::vector<std::string>{"cpu"};
  }
  for (int i = 0; i < *num_gpus; ++i) {
    names.push_back(absl::StrCat("cuda:", i));
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<ServedDevice>> OpenDevices(
    const v1::Config& config) {
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            DeviceNames(config));
  std::vector<ServedDevice> devices;
  for (const std::string& name : names) {
    ServedDevice device;
    DATASETD_ASSIGN_OR_RETURN(
        device.backend,
        CreateBackend(
            name,
            {.host = {.num_threads = static_cast<int>(config.host_threads())},
             .max_batches_per_launch =
                 config.max_batches_per_launch() == 0
                     ? kMaxBatchesPerLaunch
                     : static_cast<int>(config.max_batches_per_launch())}));
    const DeviceInfo& info = device.backend->info();
    const uint64_t budget =
        config.memory_budget_mib() != 0
            ? config.memory_budget_mib() << 20
            : static_cast<uint64_t>(kDefaultBudgetShare *
                                    static_cast<double>(info.free_bytes));
    const v1::UserLimits& limits = config.user_limits();
    device.budget = std::make_unique<MemoryBudget>(
        budget,
        MemoryBudget::UserLimits{
            .dataset_bytes = UserLimit(limits.has_max_dataset_mib(),
                                       limits.max_dataset_mib() << 20, budget),
            .slab_bytes = UserLimit(limits.has_max_slab_mib(),
                                    limits.max_slab_mib() << 20, budget)});
    Log(LogSubsystem::kServer)
        .info("device {}: {}, memory budget {} MiB", info.name,
              info.description, budget >> 20);
    devices.push_back(std::move(device));
  }
  return devices;
}

absl::StatusOr<std::vector<ExportKind>> AllowedExports(
    const v1::Config& config) {
  if (config.slab_export() == "auto") return std::vector<ExportKind>{};
  for (const ExportKind kind :
       {ExportKind::kCudaIpcHandle, ExportKind::kCudaVmmFd}) {
    if (config.slab_export() == ExportKindName(kind)) {
      return std::vector<ExportKind>{kind};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("slab_export: '", config.slab_export(),
                   "' is none of auto, cuda_ipc_handle, cuda_vmm_fd"));
}

}  // namespace datasetd
