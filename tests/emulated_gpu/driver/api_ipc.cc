// Handles of cuMemAlloc memory for other processes.
//
// A handle names a descriptor of the exporter, which the importer opens through
// /proc: so it ends with the exporter, needs one PID namespace, and the same
// user. Whether a driver serves another user is not documented.

#include <cuda.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

constexpr uint64_t kMagic = 0x6475676465746164;

struct HandleContents {
  uint64_t magic;
  uint64_t backing_id;
  // /proc/self/ns/pid of the exporter.
  uint64_t pid_namespace;
  int32_t pid;
  int32_t fd;
  uint64_t offset_bytes;
  Uuid uuid;
};
static_assert(sizeof(HandleContents) <= sizeof(CUipcMemHandle));

uint64_t PidNamespace() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// A driver finds the exporter by the number of its process. Its own number is
// refused with CUDA_ERROR_INVALID_CONTEXT, and so is a process of another
// namespace: it is not found.
bool IsReachable(const HandleContents& contents) {
  return contents.pid != getpid() && contents.pid_namespace == PidNamespace();
}

CUresult Open(Call& call, const HandleContents& contents,
              CUdeviceptr* address) {
  Driver& driver = Driver::Get();
  const int device = call.context->device;
  auto backing =
      Backing::FromProcess(contents.pid, contents.fd, contents.backing_id);
  if (backing == nullptr) {
    call.detail = "the exporter, or its memory, is gone";
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const int owner = driver.VisibleDevice(contents.uuid);
  if (owner >= 0 && owner != device && !driver.settings.has_peers) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  const uint64_t size_bytes = backing->size_bytes();
  const AddressRange range = driver.memory->Reserve(size_bytes, kBlockBytes);
  if (range.device == 0 ||
      !MapAlias(range.alias, size_bytes, backing->fd(), 0)) {
    return CUDA_ERROR_MAP_FAILED;
  }
  backing->MarkInUse();
  // CUDA Programming Guide, "Interprocess Communication": the importer sees the
  // whole block that the allocation was cut from.
  driver.memory->Insert({.address = range.device,
                         .size_bytes = size_bytes,
                         .bytes = ToHandle<uint8_t*>(range.alias),
                         .kind = RegionKind::kIpc,
                         .device = device,
                         .readers = 1u << device,
                         .writers = 1u << device,
                         .context = call.context->id});
  *address = range.device + contents.offset_bytes;
  driver.opened[*address] = {.context = call.context->id,
                             .offset_bytes = contents.offset_bytes,
                             .backing = std::move(backing),
                             .range = range,
                             .num_opens = 1};
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// "a pointer to the base of an existing device memory allocation created with
// cuMemAlloc".
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuIpcGetMemHandle), kNeedsContext,
      [&](Call& call) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // CUDA for Tegra, "Interprocess Communication": events only.
        if (ReadAttribute(Driver::Get().settings, call.context->device,
                          CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        const auto it = call.context->allocations.find(address);
        if (it == call.context->allocations.end()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        Block& block = *it->second;
        block.is_exported = true;
        const HandleContents contents = {
            .magic = kMagic,
            .backing_id = block.backing->id(),
            .pid_namespace = PidNamespace(),
            .pid = getpid(),
            .fd = block.backing->fd(),
            .offset_bytes = address - block.range.device,
            .uuid = block.backing->uuid()};
        memset(handle, 0, sizeof(*handle));
        memcpy(handle, &contents, sizeof(contents));
        return CUDA_SUCCESS;
      });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                            unsigned int flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuIpcOpenMemHandle), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        HandleContents contents;
        memcpy(&contents, &handle, sizeof(contents));
        // "Must be specified as CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS."
        if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
            contents.magic != kMagic) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (!IsReachable(contents)) return CUDA_ERROR_INVALID_CONTEXT;
        // "the reference count on the handle is incremented by 1 and the
        // existing device pointer is returned."
        for (auto& [opened_address, opened] : Driver::Get().opened) {
          if (opened.context == call.context->id &&
              opened.backing->id() == contents.backing_id &&
              opened.offset_bytes == contents.offset_bytes) {
            ++opened.num_opens;
            *address = opened_address;
            return CUDA_SUCCESS;
          }
        }
        return Open(call, contents, address);
      });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuIpcCloseMemHandle),
                           kNeedsContext | kUnsafeInCapture,
                           [&](Call& call) -> CUresult {
                             Driver& driver = Driver::Get();
                             const auto it = driver.opened.find(address);
                             if (it == driver.opened.end())
                               return CUDA_ERROR_INVALID_VALUE;
                             if (--it->second.num_opens > 0)
                               return CUDA_SUCCESS;
                             if (driver.HasWork(*call.context))
                               ++driver.num_unmapped_under_work;
                             driver.CloseOpened(address);
                             return CUDA_SUCCESS;
                           });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
