// Virtual memory management: reservations, physical allocations, their mapping,
// access and descriptors. No call needs a context.

#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

constexpr auto kDescriptorAttribute =
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;

bool IsGranular(uint64_t number) { return number % kBlockBytes == 0; }

CUresult CheckProperties(const CUmemAllocationProp* properties) {
  if (properties == nullptr ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int device = properties->location.id;
  const Driver& driver = Driver::Get();
  if (device < 0 || device >= static_cast<int>(driver.devices.size())) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (ReadAttribute(driver.settings, device,
                    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ==
      0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  switch (properties->requestedHandleTypes) {
    case CU_MEM_HANDLE_TYPE_NONE:
      return CUDA_SUCCESS;
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
      return ReadAttribute(driver.settings, device, kDescriptorAttribute) == 0
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The reservation that holds the whole range; nullptr if none does.
const std::pair<const uint64_t, std::pair<uint64_t, uint64_t>>* FindReservation(
    uint64_t address, uint64_t size_bytes) {
  auto& reservations = Driver::Get().reservations;
  auto it = reservations.upper_bound(address);
  if (it == reservations.begin()) return nullptr;
  --it;
  const uint64_t offset = address - it->first;
  const uint64_t reserved = it->second.first;
  return offset < reserved && size_bytes <= reserved - offset ? &*it : nullptr;
}

// The mappings that make up the range exactly; empty if none do.
std::vector<Region> FindMappings(uint64_t address, uint64_t size_bytes) {
  const Driver& driver = Driver::Get();
  std::vector<Region> found;
  uint64_t next = address;
  const uint64_t end = address + size_bytes;
  while (next < end) {
    const auto region = driver.memory->Find(next);
    if (!region.has_value() || region->kind != RegionKind::kMapped ||
        region->address != next || region->size_bytes > end - next) {
      return {};
    }
    found.push_back(*region);
    next += region->size_bytes;
  }
  return found;
}

CUresult CheckAccess(const CUmemAccessDesc& access, int owner) {
  const Driver& driver = Driver::Get();
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int device = access.location.id;
  if (device < 0 || device >= static_cast<int>(driver.devices.size())) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (device != owner && !driver.settings.has_peers) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (access.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(
    size_t* granularity, const CUmemAllocationProp* properties,
    CUmemAllocationGranularity_flags option) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuMemGetAllocationGranularity),
                           kNoRule, [&](Call& call) -> CUresult {
                             const CUresult result =
                                 CheckProperties(properties);
                             if (result != CUDA_SUCCESS) return result;
                             if (granularity == nullptr)
                               return CUDA_ERROR_INVALID_VALUE;
                             *granularity = kBlockBytes;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemCreate), kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const CUresult result = CheckProperties(properties);
        if (result != CUDA_SUCCESS) return result;
        if (handle == nullptr || flags != 0 || size_bytes == 0 ||
            !IsGranular(size_bytes)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const int device = properties->location.id;
        if (!driver.Charge(device, size_bytes)) {
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        auto backing =
            Backing::Create(BackingKind::kVmm,
                            driver.devices[device].settings.uuid, size_bytes);
        if (backing == nullptr) {
          driver.Discharge(device, size_bytes);
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        // Nothing says that the memory is cleared.
        backing->Fill(0xa5, driver.settings.fill_bytes);
        *handle = driver.NewHandle();
        driver.allocations[*handle] = {.backing = std::move(backing),
                                       .device = device,
                                       .properties = *properties,
                                       .charged_bytes = size_bytes,
                                       .num_handles = 1};
        return CUDA_SUCCESS;
      });
}

// The memory stays as long as it is mapped.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemRelease), kNoRule, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.allocations.find(handle);
        if (it == driver.allocations.end() || it->second.num_handles == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        --it->second.num_handles;
        driver.DropAllocation(handle);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size_bytes,
                             size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemAddressReserve), kNoRule,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto page = static_cast<uint64_t>(getpagesize());
        if (address == nullptr || flags != 0 || size_bytes == 0 ||
            size_bytes % page != 0 || hint % page != 0 ||
            (alignment & (alignment - 1)) != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const AddressRange range = driver.memory->Reserve(
            size_bytes, std::max<uint64_t>(alignment, kBlockBytes));
        if (range.device == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        driver.reservations[range.device] = {size_bytes, range.alias};
        *address = range.device;
        return CUDA_SUCCESS;
      });
}

// "The size must match what was given to memAddressReserve."
CUresult cuMemAddressFree(CUdeviceptr address, size_t size_bytes) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemAddressFree), kNoRule, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.reservations.find(address);
        if (it == driver.reservations.end() || it->second.first != size_bytes) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const auto mapping = driver.mappings.lower_bound(address);
        if (mapping != driver.mappings.end() &&
            mapping->first - address < size_bytes) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        driver.reservations.erase(it);
        return CUDA_SUCCESS;
      });
}

CUresult cuMemMap(CUdeviceptr address, size_t size_bytes, size_t offset_bytes,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemMap), kUnsafeInCapture, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.allocations.find(handle);
        const auto* const reservation = FindReservation(address, size_bytes);
        if (it == driver.allocations.end() || it->second.num_handles == 0 ||
            reservation == nullptr || flags != 0 || offset_bytes != 0 ||
            size_bytes == 0 || !IsGranular(address) ||
            !IsGranular(size_bytes) ||
            size_bytes > it->second.backing->size_bytes()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        for (const auto& [other, mapping] : driver.mappings) {
          const auto region = driver.memory->Find(other);
          if (other < address + size_bytes &&
              address < other + region->size_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
          }
        }
        const uint64_t alias =
            reservation->second.second + (address - reservation->first);
        if (!MapAlias(alias, size_bytes, it->second.backing->fd(), 0)) {
          return CUDA_ERROR_MAP_FAILED;
        }
        ++it->second.num_mappings;
        driver.mappings[address] = {.handle = handle, .alias = alias};
        // "does not make the address accessible".
        driver.memory->Insert({.address = address,
                               .size_bytes = size_bytes,
                               .bytes = ToHandle<uint8_t*>(alias),
                               .kind = RegionKind::kMapped,
                               .device = it->second.device});
        return CUDA_SUCCESS;
      });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size_bytes) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemUnmap), kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const std::vector<Region> regions = FindMappings(address, size_bytes);
        if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
        for (const auto& [id, context] : driver.contexts) {
          if (driver.HasWork(*context)) ++driver.num_unmapped_under_work;
        }
        for (const Region& region : regions) {
          const Mapping mapping = driver.mappings.at(region.address);
          driver.mappings.erase(region.address);
          driver.memory->Erase(region.address);
          UnmapAlias(mapping.alias, region.size_bytes);
          --driver.allocations.at(mapping.handle).num_mappings;
          driver.DropAllocation(mapping.handle);
        }
        return CUDA_SUCCESS;
      });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size_bytes,
                        const CUmemAccessDesc* accesses, size_t count) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemSetAccess), kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const std::vector<Region> regions = FindMappings(address, size_bytes);
        if (regions.empty() || accesses == nullptr || count == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        for (size_t i = 0; i < count; ++i) {
          for (const Region& region : regions) {
            const CUresult result = CheckAccess(accesses[i], region.device);
            if (result != CUDA_SUCCESS) return result;
          }
        }
        for (size_t i = 0; i < count; ++i) {
          for (const Region& region : regions) {
            driver.memory->SetAccess(
                region.address, accesses[i].location.id,
                accesses[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
                accesses[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
          }
        }
        return CUDA_SUCCESS;
      });
}

// The type must have been asked for when the memory was made. The descriptor
// keeps the memory.
CUresult cuMemExportToShareableHandle(void* shareable,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemExportToShareableHandle), kNoRule,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.allocations.find(handle);
        if (shareable == nullptr || flags != 0 ||
            it == driver.allocations.end() ||
            type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            (it->second.properties.requestedHandleTypes & type) == 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        // As a driver's: not closed by exec.
        const int fd = fcntl(it->second.backing->fd(), F_DUPFD, 0);
        if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
        memcpy(shareable, &fd, sizeof(fd));
        return CUDA_SUCCESS;
      });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                        void* shareable,
                                        CUmemAllocationHandleType type) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemImportFromShareableHandle), kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (handle == nullptr ||
            type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        auto backing = Backing::FromDescriptor(
            BackingKind::kVmm, static_cast<int>(FromHandle(shareable)));
        if (backing == nullptr) {
          call.detail = "not a descriptor of cuMemExportToShareableHandle";
          return CUDA_ERROR_INVALID_VALUE;
        }
        const int device = driver.VisibleDevice(backing->uuid());
        if (device < 0) {
          call.detail = "the memory is of a device that is not visible";
          return CUDA_ERROR_INVALID_VALUE;
        }
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.requestedHandleTypes = type;
        properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                               .id = device};
        *handle = driver.NewHandle();
        driver.allocations[*handle] = {.backing = std::move(backing),
                                       .device = device,
                                       .properties = properties,
                                       .num_handles = 1};
        return CUDA_SUCCESS;
      });
}

CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuMemGetAllocationPropertiesFromHandle), kNoRule,
      [&](Call& call) -> CUresult {
        const auto& allocations = Driver::Get().allocations;
        const auto it = allocations.find(handle);
        if (properties == nullptr || it == allocations.end()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        *properties = it->second.properties;
        return CUDA_SUCCESS;
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
