#include "cuda/device/cuda_backend.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/gpu_uuid.h"
#include "base/status_macros.h"
#include "cuda/device/augment_kernels.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_exported_memory.h"
#include "cuda/device/cuda_memory.h"
#include "cuda/device/cuda_pinned_memory.h"
#include "cuda/device/cuda_stream.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "cuda/kernels/program/chain_plan.h"

namespace datasetd {
namespace {

absl::StatusOr<DeviceInfo> ReadInfo(const CudaContext& context) {
  const DriverApi& api = context.api();
  char name[256] = {};
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuDeviceGetName(name, sizeof(name), context.device()));
  DATASETD_ASSIGN_OR_RETURN(const std::string capability,
                            context.ComputeCapability());
  int driver_version = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuDriverGetVersion(&driver_version));
  DeviceInfo info;
  info.name = absl::StrCat("cuda:", context.ordinal());
  info.description = absl::StrCat(
      name, ", compute capability ", capability, ", driver of CUDA ",
      CudaVersionText(driver_version), ", ", KernelsText());
  // Under MIG this is the instance's UUID, which the client reads as well.
  CUuuid uuid;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuDeviceGetUuid(&uuid, context.device()));
  static_assert(sizeof(uuid.bytes) == sizeof(info.uuid));
  std::memcpy(info.uuid.data(), uuid.bytes, info.uuid.size());
  info.is_mig = IsMigUuid(api, context.device(), uuid);
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

absl::StatusOr<std::vector<ExportKind>> FindExportKinds(
    const CudaContext& context) {
  std::vector<ExportKind> kinds;
  // First: it needs no PID namespace in common, and outlives the exporter.
  DATASETD_ASSIGN_OR_RETURN(const bool has_vmm,
                            CudaVmmMemory::IsSupported(context));
  if (has_vmm) kinds.push_back(ExportKind::kCudaVmmFd);
  // Integrated devices share events only.
  DATASETD_ASSIGN_OR_RETURN(const int is_integrated,
                            context.Attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED));
  if (is_integrated == 0) kinds.push_back(ExportKind::kCudaIpcHandle);
  if (kinds.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "cuda:", context.ordinal(), " cannot share memory between processes"));
  }
  return kinds;
}

// The most that one launch may take where it can be cut: some milliseconds, at
// a tenth of the lanes' peak rate.
constexpr int64_t kOperationsPerMultiprocessor = 50'000'000;

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options,
              std::unique_ptr<CudaContext> context,
              std::unique_ptr<AugmentKernels> kernels, DeviceInfo info,
              std::vector<ExportKind> export_kinds)
      : context_(std::move(context)),
        kernels_(std::move(kernels)),
        max_batches_per_launch_(options.max_batches_per_launch),
        pinned_piece_bytes_(options.pinned_piece_bytes),
        info_(std::move(info)),
        export_kinds_(std::move(export_kinds)) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override {
    DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory,
                              MallocOnDevice(*context_, size_bytes));
    return std::make_unique<CudaDeviceMemory>(*context_, std::move(memory),
                                              size_bytes);
  }

  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    for (const ExportKind supported : export_kinds_) {
      if (kind != supported) continue;
      if (kind == ExportKind::kCudaIpcHandle) {
        return CudaIpcMemory::Create(*context_, size_bytes);
      }
      return CudaVmmMemory::Create(*context_, size_bytes);
    }
    return absl::UnimplementedError(absl::StrCat(
        "device ", info_.name, " exports no ", ExportKindName(kind)));
  }

  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) override {
    return AllocateCudaHostMemory(*context_, size_bytes);
  }

  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateLargeHost(
      size_t size_bytes, const std::atomic<bool>& is_cancelled) override {
    // Such a device sees memory of cuMemHostAlloc alone at its host address.
    DATASETD_ASSIGN_OR_RETURN(
        const int uses_host_address,
        context_->Attribute(
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM));
    if (uses_host_address == 0) return AllocateHost(size_bytes);
    return CudaPinnedMemory::Create(*context_, size_bytes, is_cancelled,
                                    pinned_piece_bytes_);
  }

  bool CanReadPeer(const Backend& peer) const override {
    const auto* const gpu = dynamic_cast<const CudaBackend*>(&peer);
    return gpu != nullptr && gpu != this &&
           context_->CanReachPeer(*gpu->context_).value_or(false);
  }

  absl::Status ReadPeer(const Backend& peer) override {
    const auto* const gpu = dynamic_cast<const CudaBackend*>(&peer);
    if (gpu == nullptr) return Backend::ReadPeer(peer);
    return context_->EnablePeer(*gpu->context_);
  }

  std::vector<ExportKind> export_kinds() const override {
    return export_kinds_;
  }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) override {
    return CudaProgram::Create(*context_, program);
  }

  using Backend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    return CudaStream::Create(*context_, *kernels_, options.is_background);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return CudaEvent::Create(*context_);
  }

  bool needs_polling() const override { return true; }
  int max_batches_per_launch(int64_t /*batch_bytes*/) const override {
    return max_batches_per_launch_;
  }
  int max_teams(int64_t team_bytes) const override {
    return kResidentChainThreads / ChainThreads(team_bytes) *
           kernels_->num_multiprocessors();
  }
  int max_launches_in_flight() const override { return 4; }
  int64_t max_launch_operations() const override {
    return kOperationsPerMultiprocessor * kernels_->num_multiprocessors();
  }

 private:
  const std::unique_ptr<CudaContext> context_;
  const std::unique_ptr<AugmentKernels> kernels_;
  const int max_batches_per_launch_;
  const size_t pinned_piece_bytes_;
  const DeviceInfo info_;
  const std::vector<ExportKind> export_kinds_;
};

// Takes the context if it succeeds.
absl::StatusOr<std::unique_ptr<Backend>> CreateIn(
    std::unique_ptr<CudaContext>& context, const CudaBackendOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(std::vector<ExportKind> export_kinds,
                            FindExportKinds(*context));
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<AugmentKernels> kernels,
                            AugmentKernels::Load(*context));
  // Last: the kernels take memory.
  DATASETD_ASSIGN_OR_RETURN(DeviceInfo info, ReadInfo(*context));
  return std::make_unique<CudaBackend>(options, std::move(context),
                                       std::move(kernels), std::move(info),
                                       std::move(export_kinds));
}

}  // namespace

absl::StatusOr<std::string> CudaDeviceUuid(int ordinal) {
  DATASETD_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("no device cuda:", ordinal));
  }
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  CUdevice device = 0;
  CUuuid uuid;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuDeviceGet(&device, ordinal));
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuDeviceGetUuid(&uuid, device));
  return GpuUuidText(absl::string_view(uuid.bytes, sizeof(uuid.bytes)),
                     IsMigUuid(*api, device, uuid));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  DATASETD_RETURN_IF_ERROR(CheckRunsKernels(*api));
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context,
                            CudaContext::Retain(options.ordinal));
  auto backend = CreateIn(context, options);
  // The daemon may go on without this device.
  if (!backend.ok()) CudaContext::Release(std::move(context));
  return backend;
}

}  // namespace datasetd
