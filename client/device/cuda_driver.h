// The CUDA driver as the client uses it: libcuda.so.1, opened at run time, on
// the primary context of one GPU. No CUDA runtime, so that it lives beside any
// torch. This header needs no toolkit; built without one, Open returns
// UNIMPLEMENTED.
//
// Streams are CUstream values as integers; 0 is the legacy default stream.
// Device addresses are void*.
//
// Thread-safe, but for JoinStream. Every call makes the primary context current
// and restores what was current. Errors carry the driver call and its error's
// name; CANCELLED means that the driver shuts down with the process.

#ifndef DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_
#define DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace datasetd::client {

inline constexpr char kCudaLibrary[] = "libcuda.so.1";

class CudaDriver {
 public:
  // The GPU of this process that has the UUID (16 bytes); `device` is the
  // daemon's name for it, for messages.
  //   UNIMPLEMENTED        built without the CUDA toolkit's headers
  //   UNAVAILABLE          no driver here
  //   FAILED_PRECONDITION  the GPU is not visible; names it and those that are
  static absl::StatusOr<std::unique_ptr<CudaDriver>> Open(
      const std::string& uuid, const std::string& device,
      const std::string& library = kCudaLibrary);
  virtual ~CudaDriver() = default;

  // In this process's numbering.
  virtual int ordinal() const = 0;

  // `handle` is a cudaIpcMemHandle_t, 64 bytes.
  virtual absl::StatusOr<void*> OpenIpcHandle(const std::string& handle) = 0;
  virtual absl::Status CloseIpcHandle(void* address) = 0;

  // Maps an allocation of cuMemCreate. Borrows the descriptor.
  virtual absl::StatusOr<void*> MapDescriptor(int fd, size_t size_bytes) = 0;
  virtual absl::Status UnmapDescriptor(void* address, size_t size_bytes) = 0;

  // Lets streams write to host memory. Without it, or where the driver has no
  // stream memory operations, CanWriteValues is false.
  virtual absl::Status RegisterHostMemory(void* address, size_t size_bytes) = 0;
  virtual absl::Status UnregisterHostMemory(void* address) = 0;
  virtual bool CanWriteValues() const = 0;

  // When all that `stream` was given before has completed, the registered word
  // holds `value`. Returns at once.
  virtual absl::Status WriteValue(uint64_t stream, void* word,
                                  uint64_t value) = 0;
  // Likewise calls `function`, which may make no CUDA call, on a thread of the
  // driver's. If the context is destroyed before, it is not called.
  virtual absl::Status LaunchHostFunction(uint64_t stream,
                                          void (*function)(void*),
                                          void* argument) = 0;

  // Work given to it now would become part of a graph.
  virtual bool IsCapturing(uint64_t stream) = 0;

  // What `stream` is given from now on waits for what `other` was given up to
  // now. Not thread-safe: one event serves all calls.
  virtual absl::Status JoinStream(uint64_t stream, uint64_t other) = 0;

  // Copies device memory and waits until it is there.
  virtual absl::Status CopyToHost(void* to, const void* from,
                                  size_t size_bytes) = 0;

  // Waits for everything that this process gave the device.
  virtual absl::Status Synchronize() = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_DEVICE_CUDA_DRIVER_H_
