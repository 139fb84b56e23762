// Streams, events and programs of the CUDA backend.

#ifndef DATASETD_CUDA_DEVICE_CUDA_STREAM_H_
#define DATASETD_CUDA_DEVICE_CUDA_STREAM_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_handle.h"
#include "cuda/backend/backend.h"
#include "cuda/device/augment_kernels.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_memory.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct CudaStreamTraits {
  using Handle = CUstream;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle stream);
};

struct CudaEventTraits {
  using Handle = CUevent;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle event);
};

// The program is in device memory for the kernel, and here for the launcher.
class CudaProgram final : public LoadedProgram {
 public:
  static absl::StatusOr<std::unique_ptr<LoadedProgram>> Create(
      const CudaContext& context, const AugmentProgram& program);
  CudaProgram(const CudaContext& context, const AugmentProgram& program,
              CudaMalloc memory);
  ~CudaProgram() override;

  const AugmentProgram& host_program() const { return host_program_; }
  const DeviceProgram* device_program() const {
    return reinterpret_cast<const DeviceProgram*>(memory_.get());
  }

 private:
  const CudaContext& context_;
  const AugmentProgram host_program_;
  CudaMalloc memory_;
};

// Without timing.
class CudaEvent final : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<Event>> Create(
      const CudaContext& context);
  CudaEvent(const CudaContext& context, UniqueHandle<CudaEventTraits> event);
  ~CudaEvent() override;

  absl::StatusOr<bool> IsDone() override;

  CUevent get() const { return event_.get(); }

 private:
  const CudaContext& context_;
  UniqueHandle<CudaEventTraits> event_;
};

// A stream that does not synchronise with the default stream. Its priority is
// the highest, for background work the lowest. A copy from or to host memory
// that is not pinned may wait for the device.
class CudaStream final : public Stream {
 public:
  static absl::StatusOr<std::unique_ptr<Stream>> Create(
      const CudaContext& context, const AugmentKernels& kernels,
      bool is_background);
  CudaStream(const CudaContext& context, const AugmentKernels& kernels,
             UniqueHandle<CudaStreamTraits> stream);
  ~CudaStream() override;

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from,
                            size_t size_bytes) override;
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                          size_t size_bytes) override;
  absl::Status CopyFromPeer(uint8_t* to, const uint8_t* from,
                            size_t size_bytes) override;
  absl::Status Augment(const LoadedProgram& program,
                       absl::Span<const BatchTask> batches) override;
  absl::Status StageIn(const StageCopy* copies, int64_t num_copies) override;
  absl::Status Record(Event& event) override;
  absl::Status Synchronize() override;

 private:
  const CudaContext& context_;
  const AugmentKernels& kernels_;
  UniqueHandle<CudaStreamTraits> stream_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_STREAM_H_
