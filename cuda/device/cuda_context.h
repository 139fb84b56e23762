// The primary context of one GPU, which holds everything that the device layer
// makes there. Unless it is released, it stays until the process ends: a slab
// whose client still maps it must not be freed with the context
// (FeedTable::FreeMemory).
//
// Every call of the device layer makes the context current in its thread, and
// none restores what was current: the threads are the daemon's own.

#ifndef DATASETD_CUDA_DEVICE_CUDA_CONTEXT_H_
#define DATASETD_CUDA_DEVICE_CUDA_CONTEXT_H_

#include <cuda.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/device/driver_api.h"

namespace datasetd {

class CudaContext {
 public:
  // `ordinal` counts as the driver does, after CUDA_VISIBLE_DEVICES. The
  // context is current on return.
  //
  //   INVALID_ARGUMENT  no such device; names how many there are
  //   UNAVAILABLE       as CountCudaDevices, or another process has the device
  //                     to itself
  static absl::StatusOr<std::unique_ptr<CudaContext>> Retain(int ordinal);

  // Gives back the context, and the device's memory with it; none is current
  // then. Errors are logged. REQUIRES: nothing that was made in it is left.
  static void Release(std::unique_ptr<CudaContext> context);

  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const DriverApi& api() const { return api_; }
  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }

  // Whether EnablePeer is possible.
  absl::StatusOr<bool> CanReachPeer(const CudaContext& peer) const;
  // Lets kernels of this context use the memory of `peer`.
  //   FAILED_PRECONDITION  the devices cannot; names both
  absl::Status EnablePeer(const CudaContext& peer) const;

  absl::Status MakeCurrent() const;
  // For destructors: logs an error, as LogCudaError does.
  void MakeCurrentOrLog() const;

  // Returns an attribute of the device.
  absl::StatusOr<int> Attribute(CUdevice_attribute attribute) const;
  // Such as "8.0".
  absl::StatusOr<std::string> ComputeCapability() const;

 private:
  CudaContext(const DriverApi& api, int ordinal, CUdevice device)
      : api_(api), ordinal_(ordinal), device_(device) {}

  const DriverApi& api_;
  const int ordinal_;
  const CUdevice device_;
  CUcontext context_ = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_CONTEXT_H_
