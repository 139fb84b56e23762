#include "cuda/cuda_backend.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/cuda_exported_memory.h"
#include "cuda/cuda_memory.h"
#include "cuda/cuda_stream.h"
#include "cuda/current_device.h"
#include "cuda/driver_api.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

absl::StatusOr<DeviceInfo> ReadInfo(int ordinal) {
  cudaDeviceProp properties;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, ordinal));
  DeviceInfo info;
  info.name = absl::StrCat("cuda:", ordinal);
  info.description = absl::StrCat(properties.name, ", compute capability ",
                                  properties.major, ".", properties.minor);
  static_assert(sizeof(properties.uuid.bytes) == sizeof(info.uuid));
  std::memcpy(info.uuid.data(), properties.uuid.bytes, info.uuid.size());
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

absl::StatusOr<std::vector<ExportKind>> FindExportKinds(const DriverApi& api,
                                                        int ordinal) {
  std::vector<ExportKind> kinds;
  // First: it needs no PID namespace in common, and outlives the exporter.
  DATASETD_ASSIGN_OR_RETURN(const bool has_vmm,
                            CudaVmmMemory::IsSupported(api, ordinal));
  if (has_vmm) kinds.push_back(ExportKind::kCudaVmmFd);
  // Integrated devices share events only.
  int is_integrated = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(
      &is_integrated, cudaDevAttrIntegrated, ordinal));
  if (is_integrated == 0) kinds.push_back(ExportKind::kCudaIpcHandle);
  if (kinds.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "cuda:", ordinal, " cannot share memory between processes"));
  }
  return kinds;
}

// Of launches that may be cut: some milliseconds, at a tenth of what the lanes
// could do.
constexpr int64_t kOperationsPerMultiprocessor = 50'000'000;

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, DeviceInfo info,
              int num_multiprocessors, const DriverApi& api,
              std::vector<ExportKind> export_kinds)
      : ordinal_(options.ordinal),
        max_batches_per_launch_(options.max_batches_per_launch),
        info_(std::move(info)),
        num_multiprocessors_(num_multiprocessors),
        api_(api),
        export_kinds_(std::move(export_kinds)) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
    DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory, MallocOnDevice(size_bytes));
    return std::make_unique<CudaDeviceMemory>(ordinal_, std::move(memory),
                                              size_bytes);
  }

  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    for (const ExportKind supported : export_kinds_) {
      if (kind != supported) continue;
      if (kind == ExportKind::kCudaIpcHandle) {
        return CudaIpcMemory::Create(ordinal_, size_bytes);
      }
      return CudaVmmMemory::Create(api_, ordinal_, size_bytes);
    }
    return absl::UnimplementedError(absl::StrCat(
        "device ", info_.name, " exports no ", ExportKindName(kind)));
  }

  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) override {
    return CudaHostMemory::Create(ordinal_, size_bytes);
  }

  std::vector<ExportKind> export_kinds() const override {
    return export_kinds_;
  }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) override {
    return CudaProgram::Create(ordinal_, program);
  }

  using Backend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    return CudaStream::Create(ordinal_, options.is_background);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return CudaEvent::Create(ordinal_);
  }

  bool needs_polling() const override { return true; }
  int max_batches_per_launch(int64_t /*batch_bytes*/) const override {
    return max_batches_per_launch_;
  }
  // Two blocks per multiprocessor.
  int max_teams() const override { return 2 * num_multiprocessors_; }
  int max_launches_in_flight() const override { return 4; }
  int64_t max_launch_operations() const override {
    return kOperationsPerMultiprocessor * num_multiprocessors_;
  }

 private:
  const int ordinal_;
  const int max_batches_per_launch_;
  const DeviceInfo info_;
  const int num_multiprocessors_;
  const DriverApi api_;
  const std::vector<ExportKind> export_kinds_;
};

}  // namespace

absl::StatusOr<int> CountCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return absl::UnavailableError(absl::StrCat(
        "no CUDA driver, or one older than the toolkit of this build (",
        CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10,
        "); install the NVIDIA driver, or use device cpu"));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    cudaGetLastError();
    return absl::UnavailableError(
        "no CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
        "device cpu");
  }
  if (error != cudaSuccess) {
    return absl::UnavailableError(
        CudaStatus(error, "cudaGetDeviceCount").message());
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options) {
  const int ordinal = options.ordinal;
  DATASETD_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("no device cuda:", ordinal, "; there are ", count,
                     ", the first is cuda:0"));
  }
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  DATASETD_CUDA_RETURN_IF_ERROR(cudaFree(nullptr));  // makes the context
  DATASETD_ASSIGN_OR_RETURN(DeviceInfo info, ReadInfo(ordinal));
  DATASETD_ASSIGN_OR_RETURN(const DriverApi api, LoadDriverApi());
  DATASETD_ASSIGN_OR_RETURN(std::vector<ExportKind> export_kinds,
                            FindExportKinds(api, ordinal));
  int num_multiprocessors = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(
      &num_multiprocessors, cudaDevAttrMultiProcessorCount, ordinal));
  return std::make_unique<CudaBackend>(options, std::move(info),
                                       num_multiprocessors, api,
                                       std::move(export_kinds));
}

}  // namespace datasetd
