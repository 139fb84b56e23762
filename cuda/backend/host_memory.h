// Memory of the host backend: page mappings, private or shared through a memfd;
// and how much there is.

#ifndef DATASETD_CUDA_BACKEND_HOST_MEMORY_H_
#define DATASETD_CUDA_BACKEND_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"

namespace datasetd {

// `error` of a system call that takes or prepares memory.
//   RESOURCE_EXHAUSTED  there is no memory; else INTERNAL
absl::Status HostMemoryError(const char* call, size_t size_bytes, int error);

// Returns how much memory can be taken without swapping (MemAvailable) and
// within the control groups of this process.
//   RESOURCE_EXHAUSTED  no descriptor is left to look
absl::StatusOr<size_t> AvailableHostBytes();

// What a process's control groups of both versions and their parents allow; the
// largest number if there is no limit.
struct ControlGroupLimits {
  // Bytes that it may have at all.
  size_t limit_bytes = std::numeric_limits<size_t>::max();
  // Bytes that it may still take.
  size_t room_bytes = std::numeric_limits<size_t>::max();
  // True if there is a group whose limit cannot be read.
  bool has_hidden = false;
};

// `list_path` is the process's /proc/PID/cgroup, `mount_path` the directory of
// the groups, which is a parent, too: /sys/fs/cgroup.
ControlGroupLimits ReadControlGroups(
    const std::string& list_path = "/proc/self/cgroup",
    const std::string& mount_path = "/sys/fs/cgroup");

// Overcommit grants what is not there and kills later; so ask first.
//   RESOURCE_EXHAUSTED  more than is available; names both numbers
absl::Status CheckAvailableHostBytes(size_t size_bytes);

// Page-aligned, zeroed, private to the process.
//
//   INVALID_ARGUMENT    size_bytes is 0
//   RESOURCE_EXHAUSTED  more than is available; names both numbers
absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateHostDeviceMemory(
    size_t size_bytes);
absl::StatusOr<std::unique_ptr<HostMemory>> AllocatePlainHostMemory(
    size_t size_bytes);

// A memfd, rounded up to 2 MiB, its pages taken and mapped, on huge pages as
// far as there are any, sealed so that no importer can change its size. An
// importer may punch holes: those read as zero. Revoke punches all of it out,
// whoever maps it; pages that a process takes by writing to it later are that
// process's, as those of a memfd of its own. Errors as above.
absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateMemfd(
    size_t size_bytes);

}  // namespace datasetd

#endif  // DATASETD_CUDA_BACKEND_HOST_MEMORY_H_
