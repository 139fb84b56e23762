#include "cuda/device/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"

namespace datasetd {

void CudaStreamTraits::Destroy(Handle stream) {
  DATASETD_CUDA_LOG_IF_ERROR(LoadedDriverApi()->cuStreamDestroy(stream));
}

void CudaEventTraits::Destroy(Handle event) {
  DATASETD_CUDA_LOG_IF_ERROR(LoadedDriverApi()->cuEventDestroy(event));
}

absl::StatusOr<std::unique_ptr<LoadedProgram>> CudaProgram::Create(
    const CudaContext& context, const AugmentProgram& program) {
  const DriverApi& api = context.api();
  DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory,
                            MallocOnDevice(context, sizeof(DeviceProgram)));
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemcpyHtoD(
      reinterpret_cast<CUdeviceptr>(memory.get()),
      MakeDeviceProgram(program).get(), sizeof(DeviceProgram)));
  // The copy may return earlier, and our streams do not wait for the default.
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(nullptr));
  return std::make_unique<CudaProgram>(context, program, std::move(memory));
}

CudaProgram::CudaProgram(const CudaContext& context,
                         const AugmentProgram& program, CudaMalloc memory)
    : context_(context), host_program_(program), memory_(std::move(memory)) {}

CudaProgram::~CudaProgram() { context_.MakeCurrentOrLog(); }

absl::StatusOr<std::unique_ptr<Event>> CudaEvent::Create(
    const CudaContext& context) {
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  CUevent event = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      context.api().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return std::make_unique<CudaEvent>(context,
                                     UniqueHandle<CudaEventTraits>(event));
}

CudaEvent::CudaEvent(const CudaContext& context,
                     UniqueHandle<CudaEventTraits> event)
    : context_(context), event_(std::move(event)) {}

CudaEvent::~CudaEvent() { context_.MakeCurrentOrLog(); }

absl::StatusOr<bool> CudaEvent::IsDone() {
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  const CUresult error = context_.api().cuEventQuery(event_.get());
  if (error == CUDA_ERROR_NOT_READY) return false;
  DATASETD_RETURN_IF_ERROR(CudaStatus(error, "cuEventQuery"));
  return true;
}

absl::StatusOr<std::unique_ptr<Stream>> CudaStream::Create(
    const CudaContext& context, const AugmentKernels& kernels,
    bool is_background) {
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  const DriverApi& api = context.api();
  int lowest = 0;
  int highest = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuCtxGetStreamPriorityRange(&lowest, &highest));
  CUstream stream = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamCreateWithPriority(
      &stream, CU_STREAM_NON_BLOCKING, is_background ? lowest : highest));
  return std::make_unique<CudaStream>(context, kernels,
                                      UniqueHandle<CudaStreamTraits>(stream));
}

CudaStream::CudaStream(const CudaContext& context,
                       const AugmentKernels& kernels,
                       UniqueHandle<CudaStreamTraits> stream)
    : context_(context), kernels_(kernels), stream_(std::move(stream)) {}

CudaStream::~CudaStream() {
  context_.MakeCurrentOrLog();
  DATASETD_CUDA_LOG_IF_ERROR(context_.api().cuStreamSynchronize(stream_.get()));
}

absl::Status CudaStream::CopyToDevice(uint8_t* to, const uint8_t* from,
                                      size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_CUDA_RETURN_IF_ERROR(
      context_.api().cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to), from,
                                       size_bytes, stream_.get()),
      size_bytes);
  return absl::OkStatus();
}

absl::Status CudaStream::CopyToHost(uint8_t* to, const uint8_t* from,
                                    size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_CUDA_RETURN_IF_ERROR(
      context_.api().cuMemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(from),
                                       size_bytes, stream_.get()),
      size_bytes);
  return absl::OkStatus();
}

absl::Status CudaStream::CopyFromPeer(uint8_t* to, const uint8_t* from,
                                      size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_CUDA_RETURN_IF_ERROR(
      context_.api().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to),
                                       reinterpret_cast<CUdeviceptr>(from),
                                       size_bytes, stream_.get()),
      size_bytes);
  return absl::OkStatus();
}

absl::Status CudaStream::Augment(const LoadedProgram& program,
                                 absl::Span<const BatchTask> batches) {
  if (batches.empty() || batches.size() > size_t{kMaxBatchesPerLaunch}) {
    return absl::InvalidArgumentError(
        absl::StrCat("a launch of ", batches.size(), " batches; 1 to ",
                     kMaxBatchesPerLaunch, " are allowed"));
  }
  const auto& loaded = static_cast<const CudaProgram&>(program);
  return kernels_.Launch(loaded.device_program(), loaded.host_program(),
                         batches, stream_.get());
}

absl::Status CudaStream::StageIn(const StageCopy* copies, int64_t num_copies) {
  return kernels_.Stage(copies, num_copies, stream_.get());
}

absl::Status CudaStream::Record(Event& event) {
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_CUDA_RETURN_IF_ERROR(context_.api().cuEventRecord(
      static_cast<CudaEvent&>(event).get(), stream_.get()));
  return absl::OkStatus();
}

absl::Status CudaStream::Synchronize() {
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_CUDA_RETURN_IF_ERROR(
      context_.api().cuStreamSynchronize(stream_.get()));
  return absl::OkStatus();
}

}  // namespace datasetd
