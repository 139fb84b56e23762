// Device memory of cuMemAlloc, pinned host memory, and what an address is.

#include <cuda.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

// cuMemAlloc: "suitably aligned for any kind of variable"; CUDA Programming
// Guide, "Device Memory Accesses": at least 256 bytes.
constexpr uint64_t kAlignment = 256;
// Larger ones have blocks of their own.
constexpr uint64_t kMaxSharedBytes = uint64_t{1} << 20;

std::shared_ptr<Block> MakeBlock(Context& context, uint64_t size_bytes) {
  Driver& driver = Driver::Get();
  const uint64_t rounded = RoundUp(size_bytes, kBlockBytes);
  if (!driver.Charge(context.device, rounded)) return nullptr;
  auto block = std::make_shared<Block>();
  block->backing =
      Backing::Create(BackingKind::kMalloc,
                      driver.devices[context.device].settings.uuid, rounded);
  if (block->backing != nullptr) {
    block->range = driver.memory->Reserve(rounded, kBlockBytes);
  }
  if (block->range.device == 0 ||
      !MapAlias(block->range.alias, rounded, block->backing->fd(), 0)) {
    driver.Discharge(context.device, rounded);
    return nullptr;
  }
  return block;
}

uint64_t Allocate(Context& context, uint64_t size_bytes) {
  Driver& driver = Driver::Get();
  if (size_bytes > driver.devices[context.device].settings.memory_bytes) {
    return 0;
  }
  const uint64_t rounded = RoundUp(size_bytes, kAlignment);
  std::shared_ptr<Block> block;
  if (rounded > kMaxSharedBytes) {
    block = MakeBlock(context, rounded);
  } else {
    block = context.open_block;
    if (block == nullptr || block->used_bytes + rounded > kBlockBytes) {
      block = context.open_block = MakeBlock(context, kBlockBytes);
    }
  }
  if (block == nullptr) return 0;
  const uint64_t address = block->range.device + block->used_bytes;
  auto* const bytes =
      reinterpret_cast<uint8_t*>(block->range.alias + block->used_bytes);
  block->used_bytes += rounded;
  ++block->num_allocations;
  context.allocations[address] = block;
  // "The memory is not cleared."
  memset(bytes, 0xa5,
         std::min<uint64_t>(size_bytes, driver.settings.fill_bytes));
  driver.memory->Insert({.address = address,
                         .size_bytes = size_bytes,
                         .bytes = bytes,
                         .kind = RegionKind::kMalloc,
                         .device = context.device,
                         .context = context.id});
  return address;
}

uint32_t AllDevices() { return (1u << kMaxDevices) - 1; }

// Page-locked memory cannot be more than there is.
bool IsTooMuchForHost(size_t size_bytes) {
  struct sysinfo info = {};
  sysinfo(&info);
  return size_bytes > uint64_t{info.totalram} * info.mem_unit;
}

bool IsMapped(const void* address, size_t size_bytes) {
  const auto page = static_cast<uint64_t>(getpagesize());
  const uint64_t begin = FromHandle(address) / page * page;
  const uint64_t size = FromHandle(address) + size_bytes - begin;
  std::vector<unsigned char> residency((size + page - 1) / page);
  return mincore(ToHandle<void*>(begin), size, residency.data()) == 0;
}

bool SharesHostAddresses(const Settings& settings) {
  for (size_t i = 0; i < settings.visible.size(); ++i) {
    if (ReadAttribute(
            settings, static_cast<int>(i),
            CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0) {
      return false;
    }
  }
  return true;
}

CUresult AllocateHost(const char* function, void** address, size_t size_bytes,
                      unsigned int flags) {
  return Driver::Get().Run(
      function, kNeedsContext | kUnsafeInCapture, [&](Call& call) -> CUresult {
        constexpr unsigned int kFlags = CU_MEMHOSTALLOC_PORTABLE |
                                        CU_MEMHOSTALLOC_DEVICEMAP |
                                        CU_MEMHOSTALLOC_WRITECOMBINED;
        if (address == nullptr || size_bytes == 0 || (flags & ~kFlags) != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (IsTooMuchForHost(size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        MemoryMap& memory = *Driver::Get().memory;
        const uint64_t rounded =
            RoundUp(size_bytes, static_cast<uint64_t>(getpagesize()));
        const AddressRange range = memory.Reserve(rounded, kBlockBytes);
        if (range.device == 0 || !MapForHost(range.device, rounded)) {
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memory.Insert({.address = range.device,
                       .size_bytes = size_bytes,
                       .bytes = ToHandle<uint8_t*>(range.device),
                       .kind = RegionKind::kHostAlloc,
                       .readers = AllDevices(),
                       .writers = AllDevices(),
                       .context = call.context->id});
        *address = ToHandle<void*>(range.device);
        return CUDA_SUCCESS;
      });
}

// The region that begins at the host address.
std::optional<Region> FindHostBase(const void* address, RegionKind kind) {
  const auto region = Driver::Get().memory->FindHost(address);
  if (!region.has_value() || region->kind != kind ||
      region->bytes != static_cast<const uint8_t*>(address)) {
    return std::nullopt;
  }
  return region;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemGetInfo), kNeedsContext,
      [&](Call& call) -> CUresult {
        if (free_bytes == nullptr || total_bytes == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const int device = call.context->device;
        *total_bytes = Driver::Get().devices[device].settings.memory_bytes;
        *free_bytes = Driver::Get().FreeBytes(device);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t size_bytes) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemAlloc), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        if (address == nullptr || size_bytes == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        call.detail = std::to_string(size_bytes) + " bytes";
        const uint64_t allocated = Allocate(*call.context, size_bytes);
        if (allocated == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        *address = allocated;
        return CUDA_SUCCESS;
      });
}

// "may perform implicit synchronization": it does, always.
CUresult cuMemFree(CUdeviceptr address) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemFree), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (address == 0) return CUDA_SUCCESS;
        for (const auto& [id, context] : driver.contexts) {
          if (context->allocations.count(address) == 0) continue;
          const CUresult result = driver.AwaitContext(call, *context);
          if (result != CUDA_SUCCESS) return result;
          // Nobody else freed it meanwhile.
          if (context->allocations.count(address) == 0) break;
          driver.FreeAllocation(*context, address);
          return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
      });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* size_bytes,
                              CUdeviceptr address) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuMemGetAddressRange), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             const auto region =
                                 Driver::Get().memory->Find(address);
                             if (!region.has_value())
                               return CUDA_ERROR_NOT_FOUND;
                             if (base != nullptr) *base = region->address;
                             if (size_bytes != nullptr)
                               *size_bytes = region->size_bytes;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuMemHostAlloc(void** address, size_t size_bytes, unsigned int flags) {
  return AllocateHost(DATASETD_SYMBOL(cuMemHostAlloc), address, size_bytes,
                      flags);
}

CUresult cuMemAllocHost(void** address, size_t size_bytes) {
  return AllocateHost(DATASETD_SYMBOL(cuMemAllocHost), address, size_bytes, 0);
}

CUresult cuMemFreeHost(void* address) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemFreeHost), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (!FindHostBase(address, RegionKind::kHostAlloc).has_value()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = driver.AwaitContext(call, *call.context);
        if (result != CUDA_SUCCESS) return result;
        const auto region = FindHostBase(address, RegionKind::kHostAlloc);
        if (!region.has_value()) return CUDA_ERROR_INVALID_VALUE;
        driver.memory->Erase(region->address);
        UnmapForHost(region->address, region->size_bytes);
        return CUDA_SUCCESS;
      });
}

// Where a visible device lacks
// CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, the device
// address differs from the host's.
CUresult cuMemHostRegister(void* address, size_t size_bytes,
                           unsigned int flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemHostRegister), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        constexpr unsigned int kFlags =
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        if (address == nullptr || size_bytes == 0 || (flags & ~kFlags) != 0 ||
            IsTooMuchForHost(size_bytes) || !IsMapped(address, size_bytes)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        if (driver.memory->OverlapsHost(address, size_bytes)) {
          return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        }
        uint64_t device = FromHandle(address);
        if (!SharesHostAddresses(driver.settings)) {
          // Keeps the offset in the page.
          const uint64_t offset = device % static_cast<uint64_t>(getpagesize());
          device =
              offset +
              driver.memory->Reserve(size_bytes + offset, kBlockBytes).device;
        }
        driver.memory->Insert({.address = device,
                               .size_bytes = size_bytes,
                               .bytes = static_cast<uint8_t*>(address),
                               .kind = RegionKind::kRegistered,
                               .readers = AllDevices(),
                               .writers = AllDevices(),
                               .context = call.context->id});
        return CUDA_SUCCESS;
      });
}

CUresult cuMemHostUnregister(void* address) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemHostUnregister), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto region = FindHostBase(address, RegionKind::kRegistered);
        if (!region.has_value()) {
          return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        }
        driver.memory->Erase(region->address);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* address,
                                   unsigned int flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemHostGetDevicePointer), kNeedsContext,
      [&](Call& call) -> CUresult {
        if (device == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const auto region = Driver::Get().memory->FindHost(address);
        if (!region.has_value()) return CUDA_ERROR_INVALID_VALUE;
        *device = region->address +
                  static_cast<uint64_t>(static_cast<uint8_t*>(address) -
                                        region->bytes);
        return CUDA_SUCCESS;
      });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuPointerGetAttribute), kNeedsContext,
      [&](Call& call) -> CUresult {
        auto region = Driver::Get().memory->Find(address);
        if (!region.has_value()) {
          region = Driver::Get().memory->FindHost(ToHandle<void*>(address));
        }
        if (data == nullptr || !region.has_value()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const bool is_host = region->device < 0;
        switch (attribute) {
          case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
            const unsigned int type =
                is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            memcpy(data, &type, sizeof(type));
            return CUDA_SUCCESS;
          }
          case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
            const int device = is_host ? call.context->device : region->device;
            memcpy(data, &device, sizeof(device));
            return CUDA_SUCCESS;
          }
          case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            memcpy(data, &region->address, sizeof(region->address));
            return CUDA_SUCCESS;
          case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
            const size_t size = region->size_bytes;
            memcpy(data, &size, sizeof(size));
            return CUDA_SUCCESS;
          }
          case CU_POINTER_ATTRIBUTE_CONTEXT:
            memcpy(data, &region->context, sizeof(region->context));
            return CUDA_SUCCESS;
          default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
