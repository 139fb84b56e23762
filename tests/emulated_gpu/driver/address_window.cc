#include "tests/emulated_gpu/driver/address_window.h"

#include <sys/mman.h>

#include <algorithm>

namespace datasetd::emulated_driver {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{64} << 30;
constexpr uint64_t kMaxRangeBytes = uint64_t{1} << 46;
constexpr uint64_t kChunkAlignment = uint64_t{1} << 30;
constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool MapFixed(uint64_t address, uint64_t size_bytes, int protection, int flags,
              int fd, uint64_t offset) {
  return mmap(Pointer(address), size_bytes, protection, flags | MAP_FIXED, fd,
              static_cast<off_t>(offset)) != MAP_FAILED;
}

}  // namespace

AddressRange AddressWindow::Reserve(uint64_t size_bytes, uint64_t alignment) {
  if (size_bytes > kMaxRangeBytes || alignment > kChunkAlignment) return {};
  const auto begin_in = [alignment](const Chunk& chunk) {
    return (chunk.used_bytes + alignment - 1) & ~(alignment - 1);
  };
  if (chunks_.empty() ||
      begin_in(chunks_.back()) + size_bytes > chunks_.back().size_bytes) {
    const uint64_t chunk_bytes =
        std::max(kChunkBytes,
                 (size_bytes + kChunkAlignment - 1) & ~(kChunkAlignment - 1));
    // The alias lies behind the device addresses.
    void* const memory = mmap(nullptr, 2 * chunk_bytes + kChunkAlignment,
                              PROT_NONE, kNothing, -1, 0);
    if (memory == MAP_FAILED) return {};
    const uint64_t device =
        (reinterpret_cast<uint64_t>(memory) + kChunkAlignment - 1) &
        ~(kChunkAlignment - 1);
    chunks_.push_back({device, chunk_bytes, 0});
  }
  Chunk& chunk = chunks_.back();
  const uint64_t begin = begin_in(chunk);
  chunk.used_bytes = begin + size_bytes;
  return {chunk.device + begin, chunk.device + chunk.size_bytes + begin};
}

bool AddressWindow::WasReserved(uint64_t address) const {
  return std::any_of(chunks_.begin(), chunks_.end(),
                     [address](const Chunk& chunk) {
                       return address >= chunk.device &&
                              address - chunk.device < chunk.used_bytes;
                     });
}

bool MapAlias(uint64_t alias, uint64_t size_bytes, int fd,
              uint64_t offset_bytes) {
  if (!MapFixed(alias, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                offset_bytes)) {
    return false;
  }
  // A child can use no device memory, and must not keep it.
  madvise(Pointer(alias), size_bytes, MADV_DONTFORK);
  return true;
}

void UnmapAlias(uint64_t alias, uint64_t size_bytes) {
  MapFixed(alias, size_bytes, PROT_READ | PROT_WRITE, kNothing, -1, 0);
}

bool MapForHost(uint64_t device, uint64_t size_bytes) {
  return MapFixed(device, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void UnmapForHost(uint64_t device, uint64_t size_bytes) {
  MapFixed(device, size_bytes, PROT_NONE, kNothing, -1, 0);
}

}  // namespace datasetd::emulated_driver
