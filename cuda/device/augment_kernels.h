// The kernels of cuda/kernels/augment.cu on one GPU.

#ifndef DATASETD_CUDA_DEVICE_AUGMENT_KERNELS_H_
#define DATASETD_CUDA_DEVICE_AUGMENT_KERNELS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_handle.h"
#include "cuda/device/cuda_context.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"

namespace datasetd {

struct CudaModuleTraits {
  using Handle = CUmodule;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle module);
};

// Immutable; any thread may launch. `context` must outlive it.
class AugmentKernels {
 public:
  // Loads the kernels, and runs each once without batches: compiling for the
  // GPU, if need be, and the memory of their stacks are done with on return.
  // REQUIRES: the driver CheckRunsKernels.
  //
  //   UNAVAILABLE         the build has nothing that this GPU or driver can
  //                       run; says what it has
  //   RESOURCE_EXHAUSTED  no memory for the kernels or their stacks
  static absl::StatusOr<std::unique_ptr<AugmentKernels>> Load(
      const CudaContext& context);
  AugmentKernels(const CudaContext& context,
                 UniqueHandle<CudaModuleTraits> module)
      : context_(context), module_(std::move(module)) {}
  ~AugmentKernels() { context_.MakeCurrentOrLog(); }

  // Enqueues one kernel on `stream`, one more for all chains of images of the
  // program if it has any, and one for those of sequences. `device_program`, in
  // device memory, is made of `host_program`; it, the sources, the indices and
  // the slots must stay valid until the kernels have completed. `batches` and
  // `host_program` are read before the call returns. Neither allocates nor
  // synchronises. With no sample to write nothing is launched.
  //
  //   INVALID_ARGUMENT  more batches than kMaxBatchesPerLaunch, more blocks
  //                     than a launch may have, or a chain without scratch
  //                     memory
  absl::Status Launch(const DeviceProgram* device_program,
                      const AugmentProgram& host_program,
                      absl::Span<const BatchTask> batches,
                      CUstream stream) const;

  // Enqueues the copies, which lie in device memory, as one kernel on `stream`.
  absl::Status Stage(const StageCopy* copies, int64_t num_copies,
                     CUstream stream) const;

  int num_multiprocessors() const { return num_multiprocessors_; }

 private:
  absl::Status Init();
  absl::Status LaunchChains(const DeviceProgram* device_program,
                            const AugmentProgram& host_program,
                            absl::Span<const BatchTask> batches,
                            CUstream stream) const;
  absl::Status LaunchOne(CUfunction kernel, uint32_t num_blocks,
                         uint32_t num_threads, void* plan,
                         CUstream stream) const;

  const CudaContext& context_;
  UniqueHandle<CudaModuleTraits> module_;
  CUfunction augment_ = nullptr;
  CUfunction chain_ = nullptr;
  CUfunction sequence_ = nullptr;
  CUfunction stage_ = nullptr;
  int num_multiprocessors_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_AUGMENT_KERNELS_H_
