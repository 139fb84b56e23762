#include "cuda/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/current_device.h"
#include "cuda/kernels/augment.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd {

void CudaStreamTraits::Destroy(Handle stream) {
  DATASETD_CUDA_LOG_IF_ERROR(cudaStreamDestroy(stream));
}

void CudaEventTraits::Destroy(Handle event) {
  DATASETD_CUDA_LOG_IF_ERROR(cudaEventDestroy(event));
}

absl::StatusOr<std::unique_ptr<LoadedProgram>> CudaProgram::Create(
    int ordinal, const AugmentProgram& program) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory, MallocOnDevice(sizeof(program)));
  DATASETD_CUDA_RETURN_IF_ERROR(cudaMemcpy(
      memory.get(), &program, sizeof(program), cudaMemcpyHostToDevice));
  // The copy may return earlier, and our streams do not wait for the default.
  DATASETD_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
  return std::make_unique<CudaProgram>(ordinal, program, std::move(memory));
}

CudaProgram::CudaProgram(int ordinal, const AugmentProgram& program,
                         CudaMalloc memory)
    : ordinal_(ordinal), host_program_(program), memory_(std::move(memory)) {}

CudaProgram::~CudaProgram() { SetCurrentDeviceOrLog(ordinal_); }

absl::StatusOr<std::unique_ptr<Event>> CudaEvent::Create(int ordinal) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  cudaEvent_t event = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return std::make_unique<CudaEvent>(ordinal,
                                     UniqueHandle<CudaEventTraits>(event));
}

CudaEvent::CudaEvent(int ordinal, UniqueHandle<CudaEventTraits> event)
    : ordinal_(ordinal), event_(std::move(event)) {}

CudaEvent::~CudaEvent() { SetCurrentDeviceOrLog(ordinal_); }

absl::StatusOr<bool> CudaEvent::IsDone() {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  const cudaError_t error = cudaEventQuery(event_.get());
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // else the next launch would report it
    return false;
  }
  DATASETD_CUDA_RETURN_IF_ERROR(error);
  return true;
}

absl::StatusOr<std::unique_ptr<Stream>> CudaStream::Create(
    int ordinal, bool is_background) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  int lowest = 0;
  int highest = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithPriority(
      &stream, cudaStreamNonBlocking, is_background ? lowest : highest));
  return std::make_unique<CudaStream>(ordinal,
                                      UniqueHandle<CudaStreamTraits>(stream));
}

CudaStream::CudaStream(int ordinal, UniqueHandle<CudaStreamTraits> stream)
    : ordinal_(ordinal), stream_(std::move(stream)) {}

CudaStream::~CudaStream() {
  SetCurrentDeviceOrLog(ordinal_);
  DATASETD_CUDA_LOG_IF_ERROR(cudaStreamSynchronize(stream_.get()));
}

absl::Status CudaStream::CopyToDevice(uint8_t* to, const uint8_t* from,
                                      size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice,
                      stream_.get()),
      size_bytes);
  return absl::OkStatus();
}

absl::Status CudaStream::CopyToHost(uint8_t* to, const uint8_t* from,
                                    size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost,
                      stream_.get()),
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
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  const auto& loaded = static_cast<const CudaProgram&>(program);
  DATASETD_CUDA_RETURN_IF_ERROR(static_cast<cudaError_t>(LaunchAugment(
      loaded.device_program(), loaded.host_program(), batches.data(),
      static_cast<int>(batches.size()), stream_.get())));
  return absl::OkStatus();
}

absl::Status CudaStream::Record(Event& event) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  DATASETD_CUDA_RETURN_IF_ERROR(cudaEventRecord(
      static_cast<CudaEvent&>(event).get(), stream_.get()));
  return absl::OkStatus();
}

absl::Status CudaStream::Synchronize() {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal_));
  DATASETD_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_.get()));
  return absl::OkStatus();
}

}  // namespace datasetd
