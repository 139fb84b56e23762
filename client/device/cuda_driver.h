// The client's interface to the CUDA driver (cuda/device/driver_api.h), on the
// primary context of one GPU. It does not use the CUDA runtime and so coexists
// with any torch. This header needs no toolkit; in a build without one, Open
// returns UNIMPLEMENTED.
//
// Streams are CUstream values as integers; 0 is the legacy default stream.
// Device addresses are void*.
//
// Thread-safe, except for AwaitStream. Every call makes the primary context
// current and restores the previous one. Errors carry the driver call and the
// name of its error; CANCELLED means that the driver is shutting down with the
// process.

#ifndef DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_
#define DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace datasetd::client {

// The UUID of a GPU in text form (base/gpu_uuid.h). `ordinal` counts as this
// process does, after CUDA_VISIBLE_DEVICES.
//   INVALID_ARGUMENT  there is no such GPU; lists the GPUs that are visible
// Else errors as CudaDriver::Open.
absl::StatusOr<std::string> GpuUuid(int ordinal);

// That of the GPU whose context is current in this thread, as
// torch.cuda.set_device leaves it; empty if there is none. Initialises nothing.
std::string CurrentGpuUuid();

class CudaDriver {
 public:
  // Opens the GPU with the UUID (16 bytes). `device` is the daemon's name for
  // it, for messages, and `is_mig` says how to write the UUID there.
  //   UNIMPLEMENTED        built without the CUDA toolkit's headers
  //   UNAVAILABLE          there is no CUDA driver, or it is too old
  //   FAILED_PRECONDITION  the GPU is not visible; lists the GPUs that are
  static absl::StatusOr<std::unique_ptr<CudaDriver>> Open(
      const std::string& uuid, const std::string& device, bool is_mig = false);
  virtual ~CudaDriver() = default;

  // Returns the device's number in this process.
  virtual int ordinal() const = 0;

  // `handle` is a cudaIpcMemHandle_t, 64 bytes.
  virtual absl::StatusOr<void*> OpenIpcHandle(const std::string& handle) = 0;
  virtual absl::Status CloseIpcHandle(void* address) = 0;

  // Maps an allocation made by cuMemCreate. Borrows the descriptor.
  virtual absl::StatusOr<void*> MapDescriptor(int fd, size_t size_bytes) = 0;
  virtual absl::Status UnmapDescriptor(void* address, size_t size_bytes) = 0;

  // Lets streams write to host memory. CanWriteValues is false before this
  // succeeded.
  virtual absl::Status RegisterHostMemory(void* address, size_t size_bytes) = 0;
  virtual absl::Status UnregisterHostMemory(void* address) = 0;
  virtual bool CanWriteValues() const = 0;

  // Enqueues a write of `value` to the registered word, behind all earlier work
  // of `stream`. Returns at once.
  virtual absl::Status WriteValue(uint64_t stream, void* word,
                                  uint64_t value) = 0;
  // Enqueues a call of `function` on a driver thread; it must not call CUDA. It
  // is not called if the context is destroyed first.
  virtual absl::Status LaunchHostFunction(uint64_t stream,
                                          void (*function)(void*),
                                          void* argument) = 0;

  // True if work enqueued now would become part of a graph.
  virtual bool IsCapturing(uint64_t stream) = 0;

  // A stream that no work of the job is on, nor waits for.
  virtual uint64_t own_stream() const = 0;
  // Makes later work of own_stream() wait for the work enqueued on `other` so
  // far. `other` may be of another context, also of another GPU. Not
  // thread-safe: all calls share one event.
  virtual absl::Status AwaitStream(uint64_t other) = 0;

  // Copies device memory to the host; blocks until it is done.
  virtual absl::Status CopyToHost(void* to, const void* from,
                                  size_t size_bytes) = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_
