#include "server/devices/device_config.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/gpu_uuid.h"
#include "base/status_macros.h"
#include "cuda/backends.h"
#include "cuda/device/cuda_backend.h"
#include "server/config/config.h"
#include "server/dataset/memory_budget.h"
#include "server/devices/device_nodes.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

// Share of the memory that is free at start, if no budget is configured.
constexpr double kDefaultBudgetShare = 0.9;
// Likewise, of the host's for pinned memory.
constexpr uint64_t kDefaultPinnedShare = 2;

// `message`, and what keeps this process from the driver if that is a file
// mode: the driver itself does not tell.
std::string WithDeniedNode(absl::string_view message) {
  const ForbiddenNode node = FindForbiddenNode();
  return node.error != EACCES
             ? std::string(message)
             : absl::StrCat(message, "; ", DescribeMode(node.path));
}

// The configured devices; by default every GPU, or the host if there is none.
std::vector<std::string> DeviceNames(const v1::Config& config) {
  std::vector<std::string> names(config.devices().begin(),
                                 config.devices().end());
  if (!names.empty()) return names;
  const absl::StatusOr<int> num_gpus = CountCudaDevices();
  if (!num_gpus.ok()) {
    Log(LogSubsystem::kServer)
        .warn("no GPU ({}): serving from host memory",
              WithDeniedNode(num_gpus.status().message()));
    return std::vector<std::string>{"cpu"};
  }
  for (int i = 0; i < *num_gpus; ++i) {
    names.push_back(absl::StrCat("cuda:", i));
  }
  return names;
}

BackendOptions OptionsOf(const v1::Config& config) {
  return {.host = {.num_threads = static_cast<int>(config.host_threads())},
          .max_batches_per_launch =
              config.max_batches_per_launch() == 0
                  ? kMaxBatchesPerLaunch
                  : static_cast<int>(config.max_batches_per_launch())};
}

void WarnOfBudget(absl::string_view key, uint64_t budget_bytes,
                  bool is_configured) {
  const std::string warning =
      BudgetWarning(key, budget_bytes, is_configured, ReadControlGroups());
  if (!warning.empty()) Log(LogSubsystem::kServer).warn("{}", warning);
}

using Backends = std::vector<std::unique_ptr<Backend>>;

absl::StatusOr<Backends> OpenNamed(const v1::Config& config) {
  Backends backends;
  for (const std::string& name : config.devices()) {
    auto opened = CreateBackend(name, OptionsOf(config));
    if (absl::IsUnavailable(opened.status())) {
      return absl::UnavailableError(WithDeniedNode(opened.status().message()));
    }
    DATASETD_RETURN_IF_ERROR(opened.status());
    std::unique_ptr<Backend> backend = *std::move(opened);
    const std::string& found = backend->info().name;
    for (const std::unique_ptr<Backend>& other : backends) {
      if (other->info().name != found) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("devices: '", name, "' is ", found,
                       ", which is named already; name each device once"));
    }
    backends.push_back(std::move(backend));
  }
  return backends;
}

// Nobody asked for one GPU or another, so that none is worth a failed start.
absl::StatusOr<Backends> OpenUsable(const v1::Config& config) {
  const std::vector<std::string> names = DeviceNames(config);
  Backends backends;
  for (const std::string& name : names) {
    auto backend = CreateBackend(name, OptionsOf(config));
    if (backend.ok()) {
      backends.push_back(*std::move(backend));
    } else if (name == "cpu") {
      return backend.status();
    } else {
      Log(LogSubsystem::kServer)
          .warn(
              "{} is not used ({}); name it in 'devices' to make this an "
              "error",
              name, std::string(backend.status().message()));
    }
  }
  if (!backends.empty()) return backends;
  Log(LogSubsystem::kServer)
      .warn("none of the GPUs can be used: serving from host memory");
  DATASETD_ASSIGN_OR_RETURN(backends.emplace_back(),
                            CreateBackend("cpu", OptionsOf(config)));
  return backends;
}

}  // namespace

absl::StatusOr<std::vector<ServedDevice>> OpenDevices(
    const v1::Config& config) {
  DATASETD_ASSIGN_OR_RETURN(Backends backends, config.devices().empty()
                                                   ? OpenUsable(config)
                                                   : OpenNamed(config));
  std::vector<ServedDevice> devices;
  for (std::unique_ptr<Backend>& backend : backends) {
    ServedDevice device;
    device.backend = std::move(backend);
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
                                    limits.max_slab_mib() << 20, budget),
            .scratch_bytes =
                UserLimit(limits.has_max_scratch_mib(),
                          limits.max_scratch_mib() << 20, budget)});
    Log(LogSubsystem::kServer)
        .info("device {}: {}, memory budget {} MiB", info.name,
              info.description, budget >> 20);
    if (info.is_host) {
      WarnOfBudget("memory_budget_mib", budget,
                   config.memory_budget_mib() != 0);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string BudgetWarning(absl::string_view key, uint64_t budget_bytes,
                          bool is_configured,
                          const ControlGroupLimits& limits) {
  if (limits.has_hidden) {
    return absl::StrCat(
        "the memory limit of this process's control group cannot be read below "
        "/sys/fs/cgroup: set ",
        key, " below it, or loads that are within the budget of ",
        budget_bytes >> 20, " MiB may get the daemon killed");
  }
  if (!is_configured || budget_bytes <= limits.limit_bytes) return "";
  return absl::StrCat(
      key, " is ", budget_bytes >> 20,
      " MiB, and the control group of this process allows ",
      limits.limit_bytes >> 20,
      " MiB: loads that are within the budget may get the daemon killed; lower "
      "it, or raise MemoryMax= or the container's memory limit");
}

absl::StatusOr<std::unique_ptr<MemoryBudget>> OpenPinnedBudget(
    const v1::Config& config, const std::vector<ServedDevice>& devices) {
  if (std::all_of(devices.begin(), devices.end(), [](const auto& device) {
        return device.backend->info().is_host;
      })) {
    return nullptr;
  }
  uint64_t budget = config.pinned_budget_mib() << 20;
  if (budget == 0) {
    DATASETD_ASSIGN_OR_RETURN(const size_t free_bytes, AvailableHostBytes());
    budget = free_bytes / kDefaultPinnedShare;
  }
  const v1::UserLimits& limits = config.user_limits();
  Log(LogSubsystem::kServer)
      .info("pinned host memory: budget {} MiB", budget >> 20);
  WarnOfBudget("pinned_budget_mib", budget, config.pinned_budget_mib() != 0);
  return std::make_unique<MemoryBudget>(
      budget,
      MemoryBudget::UserLimits{
          .dataset_bytes = UserLimit(limits.has_max_dataset_mib(),
                                     limits.max_dataset_mib() << 20, budget)},
      "pinned_budget_mib");
}

absl::Status NameSocket(v1::Config* config) {
  std::string& path = *config->mutable_socket_path();
  if (!absl::StrContains(path, kGpuPlaceholder)) return absl::OkStatus();
  const std::vector<std::string> names = DeviceNames(*config);
  if (names.front() == "cpu") {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket '", path, "': ", kGpuPlaceholder,
        " stands for the UUID of the first device, and that is cpu; name a "
        "GPU first in 'devices', or write another path"));
  }
  DATASETD_ASSIGN_OR_RETURN(const std::string uuid, DeviceUuid(names.front()));
  path = absl::StrReplaceAll(path, {{kGpuPlaceholder, uuid}});
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket '", path, "' has ", path.size(), " bytes; a Unix socket takes ",
        sizeof(sockaddr_un::sun_path) - 1));
  }
  std::error_code error;
  const auto directory = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::Status(absl::ErrnoToStatusCode(error.value()),
                        absl::StrCat("directory ", directory.string(),
                                     " of the socket: ", error.message()));
  }
  return absl::OkStatus();
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
