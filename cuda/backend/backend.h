// A device: allocates, exports, copies and launches. Two implementations pass
// one conformance suite (tests/conformance): CUDA, and the host, whose streams
// run on threads.
//
// Ownership: objects made by a Backend must be destroyed before it. Thread
// safety: Backend may be used from any thread; a Stream and its Events from one
// thread at a time. No call but those that allocate takes memory.

#ifndef DATASETD_CUDA_BACKEND_BACKEND_H_
#define DATASETD_CUDA_BACKEND_BACKEND_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"

namespace datasetd {

enum class ExportKind : uint8_t {
  kMemfd = 1,
  kCudaIpcHandle = 2,
  kCudaVmmFd = 3,
};
const char* ExportKindName(ExportKind kind);

struct DeviceInfo {
  std::string name;                   // "cpu", "cuda:0"
  std::string description;            // shown by `datasetctl status`
  std::array<uint8_t, 16> uuid = {};  // of the GPU; zero on the host
  bool is_mig = false;  // the UUID is that of an instance of a divided GPU
  bool is_host = false;
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // when the backend was made
};

// Device memory, private to this process. Freed on destruction, which waits
// for nothing: REQUIRES: no work that uses it is pending.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual uint8_t* data() const = 0;  // device address
  virtual size_t size_bytes() const = 0;
};

inline constexpr size_t kExportAlignmentBytes = size_t{2} << 20;

// Device memory that another process can map; an allocation of its own, a
// multiple of kExportAlignmentBytes, zeroed before it is exported.
class ExportedMemory : public DeviceMemory {
 public:
  virtual ExportKind export_kind() const = 0;
  // 64 bytes for kCudaIpcHandle, else empty.
  virtual absl::Span<const uint8_t> ipc_handle() const = 0;
  // Owned by this object, CLOEXEC; -1 for kCudaIpcHandle.
  virtual int file_descriptor() const = 0;
  // Takes the memory from every process that kept a mapping or the descriptor:
  // they read zeros. The last call before destruction. Does nothing on CUDA,
  // which has no such function. May take long.
  virtual void Revoke() {}
};

// Host memory that the device reads and writes at the same address (pinned on
// CUDA).
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual uint8_t* data() const = 0;
  virtual size_t size_bytes() const = 0;
};

// A program that Stream::Augment runs, resident on the device.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
};

// A point in a stream. Made unrecorded; may be recorded again once done.
class Event {
 public:
  virtual ~Event() = default;
  // True when all work before the last Record has completed, or nothing was
  // recorded. Never blocks. An error is that of the work; it is sticky on CUDA.
  virtual absl::StatusOr<bool> IsDone() = 0;
};

// Whose work a stream carries. The host takes turns by it; on CUDA the stream
// of background work has a lower priority.
struct StreamOptions {
  uint32_t uid = 0;
  bool is_background = false;  // comes behind what a client waits for
};

// Work in order of submission; no call waits for the device but Synchronize.
// Work submitted after a failed piece of work may or may not run. Launches that
// no copy separates may run at once: REQUIRES: they write different slots.
//
//   RESOURCE_EXHAUSTED  more work is pending than the backend can hold; as many
//                       launches and events as it wants in flight always fit
class Stream {
 public:
  // Waits for pending work.
  virtual ~Stream() = default;

  // The host side must stay valid and unchanged until the copy has completed.
  virtual absl::Status CopyToDevice(uint8_t* to, const uint8_t* from,
                                    size_t size_bytes) = 0;
  virtual absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                                  size_t size_bytes) = 0;

  // As CopyToDevice, from memory of another backend. REQUIRES: its device
  // CanReadPeer that one.
  virtual absl::Status CopyFromPeer(uint8_t* /*to*/, const uint8_t* /*from*/,
                                    size_t /*size_bytes*/) {
    return absl::UnimplementedError("this device reads no other's memory");
  }

  // Runs `program` for up to max_batches_per_launch(...) batches: one kernel.
  // The program, the slots and the indices must live until completion; the
  // span of tasks itself is copied.
  virtual absl::Status Augment(const LoadedProgram& program,
                               absl::Span<const BatchTask> batches) = 0;

  // Makes the copies, by one kernel that also reads memory of HostMemory and of
  // peers (Backend::ReadPeer). The list and what it names must live until
  // completion; the list is in device memory. Not on the host, where a program
  // reads samples wherever they lie.
  //   UNIMPLEMENTED  the device is the host
  virtual absl::Status StageIn(const StageCopy* copies, int64_t num_copies) {
    return absl::UnimplementedError("the host stages nothing");
  }

  virtual absl::Status Record(Event& event) = 0;

  // Blocks until all work is done; returns the first error.
  //   CANCELLED  Cancel was called
  virtual absl::Status Synchronize() = 0;

  // From any thread, for good: what can be left out of the stream's work is,
  // and what is left out counts as done. Waits for nothing.
  virtual void Cancel() {}
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const = 0;

  // All memory is 256-byte aligned, at least.
  //
  //   INVALID_ARGUMENT    size_bytes is 0
  //   RESOURCE_EXHAUSTED  not so much memory; names the bytes
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) = 0;
  //   UNIMPLEMENTED       the device has no such export
  virtual absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) = 0;
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) = 0;

  // As AllocateHost, of any size, for what is written by the host and read by
  // the host and by StageIn: no copy of a stream may use it. It is taken piece
  // by piece where it takes long.
  //
  //   CANCELLED  is_cancelled was set meanwhile
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> AllocateLargeHost(
      size_t size_bytes, const std::atomic<bool>& /*is_cancelled*/) {
    return AllocateHost(size_bytes);
  }

  // Whether its device reads the other's memory by itself. False for itself.
  virtual bool CanReadPeer(const Backend& /*peer*/) const { return false; }
  // Lets the copies of StageIn read the memory of another device, from now on.
  //   FAILED_PRECONDITION  the device cannot; names both
  virtual absl::Status ReadPeer(const Backend& peer) {
    return absl::FailedPreconditionError(absl::StrCat(
        info().name, " cannot read the memory of ", peer.info().name));
  }

  // Best first; never empty.
  virtual std::vector<ExportKind> export_kinds() const = 0;

  virtual absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) = 0;

  // `on_done`, if the backend can, is called from a thread of its own whenever
  // a recorded event of the stream becomes done. It must not block and must not
  // call the backend.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) = 0;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done) {
    return CreateStream(std::move(on_done), StreamOptions());
  }
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // True where on_done is never called: poll the events.
  virtual bool needs_polling() const = 0;
  // Batches of that size that one launch may fill, 1..kMaxBatchesPerLaunch; all
  // of them are done when the launch is.
  virtual int max_batches_per_launch(int64_t batch_bytes) const = 0;
  // Samples of a chain that the device works on at once, at most, if each needs
  // `team_bytes` of scratch memory (chain_scratch.h); at least 1.
  virtual int max_teams(int64_t team_bytes) const = 0;
  // Launches worth keeping in flight: over all streams, or, where the backend
  // takes_turns, of one user.
  virtual int max_launches_in_flight() const = 0;
  // True where streams of several users share the device by time; else the
  // device runs what it was given first.
  virtual bool takes_turns() const { return false; }
  // Operations, as EstimatedOperations (params.h) counts them, that one launch
  // may take, so that others get their turn; 0: any number. One sample for each
  // team of a chain is always allowed.
  virtual int64_t max_launch_operations() const { return 0; }

  // Moves while launches run that take long, where the backend can tell; asks
  // for the next move. Any thread.
  virtual uint64_t num_pieces() const { return 0; }
  virtual void RequestProgress() {}
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_BACKEND_BACKEND_H_
