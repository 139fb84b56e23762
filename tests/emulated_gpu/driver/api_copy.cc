// Copies and fills. CUDA Driver API, "API synchronization behavior", says what
// each of them waits for; where it leaves a choice, the later one is taken.

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

// One side of a copy.
struct Side {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  // Host memory that was neither allocated nor registered here.
  bool is_pageable = false;
  bool is_host = false;
  // The device whose view is used.
  int device = 0;
};

// cuMemcpy: "Memory regions requested must be either entirely registered with
// CUDA, or in the case of host pageable transfers, not registered at all." Nor
// may they lie in two registrations.
constexpr char kPinnedInPart[] =
    "host memory that is not pinned as one, or not at all";

// Finds the memory of a range; nothing if the context may not use it.
std::optional<Side> FindSide(const Call& call, uint64_t address,
                             uint64_t size_bytes, Access access,
                             std::string* why) {
  Side side = {.address = address,
               .size_bytes = size_bytes,
               .device = call.context->device};
  MemoryMap& memory = *Driver::Get().memory;
  const auto region = memory.Find(address);
  if (!region.has_value()) {
    const auto host = memory.FindHost(ToHandle<void*>(address));
    side.is_host = true;
    side.is_pageable = !host.has_value();
    const bool is_pinned_in_part =
        host.has_value()
            ? ToHandle<uint8_t*>(address) + size_bytes >
                  host->bytes + host->size_bytes
            : memory.OverlapsHost(ToHandle<void*>(address), size_bytes);
    if (!is_pinned_in_part) return side;
    *why = kPinnedInPart;
    return std::nullopt;
  }
  side.is_host = region->device < 0;
  // A copy between devices needs no peer access to memory of cuMemAlloc: it is
  // staged. Mapped memory is used by who has access to it.
  if (region->kind == RegionKind::kMalloc) side.device = region->device;
  if (memory.ViewOf(side.device).Translate(address, size_bytes, access, why) ==
      nullptr) {
    if (side.is_host) *why = kPinnedInPart;
    return std::nullopt;
  }
  return side;
}

// A pointer to a device that is none.
std::optional<Side> FindDeviceSide(const Call& call, uint64_t address,
                                   uint64_t size_bytes, Access access,
                                   std::string* why) {
  if (!Driver::Get().memory->Find(address).has_value()) {
    Driver::Get()
        .memory->ViewOf(call.context->device)
        .Translate(address, size_bytes, access, why);
    return std::nullopt;
  }
  return FindSide(call, address, size_bytes, access, why);
}

// The bytes when the stream gets there.
uint8_t* BytesOf(const Side& side, Access access, std::string* why) {
  if (side.is_pageable) return ToHandle<uint8_t*>(side.address);
  MemoryMap& memory = *Driver::Get().memory;
  uint8_t* const bytes =
      memory.ViewOf(side.device)
          .Translate(side.address, side.size_bytes, access, why);
  if (bytes != nullptr || !side.is_host) return bytes;
  return memory.FindHost(ToHandle<void*>(side.address)).has_value()
             ? ToHandle<uint8_t*>(side.address)
             : nullptr;
}

Operation CopyOperation(const Side& to, const Side& from,
                        std::shared_ptr<std::vector<uint8_t>> staged) {
  return {"copy", [to, from, staged = std::move(staged)]() -> KernelOutcome {
            std::string why;
            uint8_t* const target = BytesOf(to, Access::kWrite, &why);
            const uint8_t* const source =
                staged != nullptr ? staged->data()
                                  : BytesOf(from, Access::kRead, &why);
            if (target == nullptr || source == nullptr) {
              return {CUDA_ERROR_ILLEGAL_ADDRESS,
                      std::string(target == nullptr ? "to" : "from") +
                          " memory that is gone: " + why};
            }
            memmove(target, source, to.size_bytes);
            return {};
          }};
}

CUresult Copy(Call& call, Stream& stream, std::optional<Side> to,
              std::optional<Side> from, bool is_async) {
  Driver& driver = Driver::Get();
  if (!to.has_value() || !from.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (to->size_bytes == 0) return CUDA_SUCCESS;
  // Pageable memory cannot be read or written later.
  if (stream.capture != nullptr && (to->is_pageable || from->is_pageable)) {
    driver.Invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (from->is_pageable) {
    if (!is_async) {
      // "a stream sync is performed before the copy is initiated"
      std::shared_ptr<Completion> before;
      CUresult result = driver.Enqueue(stream, {"event", nullptr}, &before);
      if (result == CUDA_SUCCESS) {
        result = driver.Await(call, stream.context(), {before});
      }
      if (result != CUDA_SUCCESS) return result;
    }
    // "The function will return once the pageable buffer has been copied to the
    // staging memory [...], but the DMA to final destination may not have
    // completed."
    const auto* const source = ToHandle<const uint8_t*>(from->address);
    staged = std::make_shared<std::vector<uint8_t>>(source,
                                                    source + from->size_bytes);
  }
  std::shared_ptr<Completion> completion;
  const CUresult result = driver.Enqueue(
      stream, CopyOperation(*to, *from, std::move(staged)), &completion);
  if (result != CUDA_SUCCESS || completion == nullptr) return result;
  // "For transfers from device memory to pageable host memory, the function
  // will return only once the copy has completed"; likewise from host to host.
  const bool waits = (to->is_host && (to->is_pageable || !is_async)) ||
                     (!is_async && from->is_host && !from->is_pageable) ||
                     (to->is_host && from->is_host);
  return waits ? driver.Await(call, stream.context(), {completion})
               : CUDA_SUCCESS;
}

enum class Direction { kToDevice, kToHost, kBetweenDevices, kAny };

CUresult RunCopy(const char* function, Direction direction, uint64_t to,
                 uint64_t from, size_t size_bytes, CUstream stream,
                 bool is_async) {
  // A synchronous one is of the legacy stream.
  const unsigned rules =
      is_async ? unsigned{kNeedsContext} : kNeedsContext | kUnsafeInCapture;
  return Driver::Get().Run(function, rules, [&](Call& call) -> CUresult {
    const auto found = Driver::Get().FindStream(call, stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (size_bytes == 0) return CUDA_SUCCESS;
    const bool from_device = direction == Direction::kToHost ||
                             direction == Direction::kBetweenDevices;
    const bool to_device = direction == Direction::kToDevice ||
                           direction == Direction::kBetweenDevices;
    if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
    return Copy(
        call, *found,
        to_device
            ? FindDeviceSide(call, to, size_bytes, Access::kWrite, &call.detail)
            : FindSide(call, to, size_bytes, Access::kWrite, &call.detail),
        from_device
            ? FindDeviceSide(call, from, size_bytes, Access::kRead,
                             &call.detail)
            : FindSide(call, from, size_bytes, Access::kRead, &call.detail),
        is_async);
  });
}

template <typename Value>
CUresult RunSet(const char* function, uint64_t address, Value value,
                size_t count, CUstream stream, bool is_async) {
  const unsigned rules =
      is_async ? unsigned{kNeedsContext} : kNeedsContext | kUnsafeInCapture;
  return Driver::Get().Run(function, rules, [&](Call& call) -> CUresult {
    Driver& driver = Driver::Get();
    const auto found = driver.FindStream(call, stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (count == 0) return CUDA_SUCCESS;
    const auto side =
        count > SIZE_MAX / sizeof(Value) || address % sizeof(Value) != 0
            ? std::nullopt
            : FindDeviceSide(call, address, count * sizeof(Value),
                             Access::kWrite, &call.detail);
    if (!side.has_value()) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Completion> completion;
    const CUresult result = driver.Enqueue(
        *found,
        {"set",
         [to = *side, value, count]() -> KernelOutcome {
           std::string why;
           uint8_t* const target = BytesOf(to, Access::kWrite, &why);
           if (target == nullptr) {
             return {CUDA_ERROR_ILLEGAL_ADDRESS, "memory that is gone: " + why};
           }
           if constexpr (sizeof(Value) == 1) {
             memset(target, value, count);
           } else {
             for (size_t i = 0; i < count; ++i) {
               memcpy(target + i * sizeof(Value), &value, sizeof(Value));
             }
           }
           return {};
         }},
        &completion);
    if (result != CUDA_SUCCESS || completion == nullptr) return result;
    // "asynchronous with respect to the host, except when the target is pinned
    // host memory".
    return !is_async && side->is_host
               ? driver.Await(call, found->context(), {completion})
               : CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpy), Direction::kAny, to, from,
                 size_bytes, nullptr, false);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                       CUstream stream) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyAsync), Direction::kAny, to, from,
                 size_bytes, stream, true);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size_bytes) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyHtoD), Direction::kToDevice, to,
                 FromHandle(from), size_bytes, nullptr, false);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size_bytes) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyDtoH), Direction::kToHost,
                 FromHandle(to), from, size_bytes, nullptr, false);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyDtoD), Direction::kBetweenDevices, to,
                 from, size_bytes, nullptr, false);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size_bytes,
                           CUstream stream) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyHtoDAsync), Direction::kToDevice, to,
                 FromHandle(from), size_bytes, stream, true);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyDtoHAsync), Direction::kToHost,
                 FromHandle(to), from, size_bytes, stream, true);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) {
  return RunCopy(DATASETD_SYMBOL(cuMemcpyDtoDAsync), Direction::kBetweenDevices,
                 to, from, size_bytes, stream, true);
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
  return RunSet(DATASETD_SYMBOL(cuMemsetD8), address, value, count, nullptr,
                false);
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned int value, size_t count) {
  return RunSet(DATASETD_SYMBOL(cuMemsetD32), address, value, count, nullptr,
                false);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count,
                         CUstream stream) {
  return RunSet(DATASETD_SYMBOL(cuMemsetD8Async), address, value, count, stream,
                true);
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count,
                          CUstream stream) {
  return RunSet(DATASETD_SYMBOL(cuMemsetD32Async), address, value, count,
                stream, true);
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
