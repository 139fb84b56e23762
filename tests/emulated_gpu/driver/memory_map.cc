#include "tests/emulated_gpu/driver/memory_map.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace datasetd::emulated_driver {
namespace {

// Kernels ask for every access: each thread remembers the regions that it used
// last, by page, until any region changes.
struct CacheEntry {
  const void* map = nullptr;
  uint64_t generation = 0;
  Region region;
};
constexpr size_t kCacheEntries = 64;
constexpr int kCachePageBits = 12;
thread_local CacheEntry cache[kCacheEntries];

std::string Hex(uint64_t address) {
  char text[32];
  snprintf(text, sizeof(text), "0x%llx",
           static_cast<unsigned long long>(address));
  return text;
}

std::string AllocationText(const Region& region) {
  return "the allocation of " + std::to_string(region.size_bytes) +
         " bytes at " + Hex(region.address);
}

}  // namespace

class MemoryMap::View final : public AddressSpace {
 public:
  View(const MemoryMap& map, int device, bool has_host_access)
      : map_(map), device_(device), has_host_access_(has_host_access) {}

  uint8_t* Translate(uint64_t address, uint64_t size_bytes, Access access,
                     std::string* why) override {
    return map_.Translate(device_, has_host_access_, address, size_bytes,
                          access, why);
  }

 private:
  const MemoryMap& map_;
  const int device_;
  const bool has_host_access_;
};

MemoryMap::MemoryMap(bool has_host_access) {
  for (int device = 0; device < kMaxDevices; ++device) {
    views_.push_back(std::make_unique<View>(*this, device, true));
    kernel_views_.push_back(
        std::make_unique<View>(*this, device, has_host_access));
    peer_access_[device][device] = true;
  }
}

MemoryMap::~MemoryMap() = default;

AddressSpace& MemoryMap::ViewOf(int device) { return *views_[device]; }

AddressSpace& MemoryMap::KernelViewOf(int device) {
  return *kernel_views_[device];
}

AddressRange MemoryMap::Reserve(uint64_t size_bytes, uint64_t alignment) {
  const std::unique_lock lock(mutex_);
  return window_.Reserve(size_bytes, alignment);
}

void MemoryMap::Insert(const Region& region) {
  const std::unique_lock lock(mutex_);
  Region inserted = region;
  if (region.kind == RegionKind::kMalloc) {
    for (int device = 0; device < kMaxDevices; ++device) {
      if (peer_access_[device][region.device]) {
        inserted.readers |= 1u << device;
        inserted.writers |= 1u << device;
      }
    }
  }
  regions_[region.address] = inserted;
  ++generation_;
}

std::optional<Region> MemoryMap::FindLocked(uint64_t address) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return std::nullopt;
  const Region& region = (--it)->second;
  if (address - region.address >= region.size_bytes) return std::nullopt;
  return region;
}

std::optional<Region> MemoryMap::Find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  return FindLocked(address);
}

std::optional<Region> MemoryMap::FindHost(const void* address) const {
  const std::shared_lock lock(mutex_);
  const auto* const byte = static_cast<const uint8_t*>(address);
  for (const auto& [begin, region] : regions_) {
    if (region.device < 0 && byte >= region.bytes &&
        byte < region.bytes + region.size_bytes) {
      return region;
    }
  }
  return std::nullopt;
}

bool MemoryMap::OverlapsHost(const void* begin, uint64_t size_bytes) const {
  const std::shared_lock lock(mutex_);
  const auto* const first = static_cast<const uint8_t*>(begin);
  for (const auto& [address, region] : regions_) {
    if (region.device < 0 && first < region.bytes + region.size_bytes &&
        region.bytes < first + size_bytes) {
      return true;
    }
  }
  return false;
}

void MemoryMap::Erase(uint64_t address) {
  const std::unique_lock lock(mutex_);
  const auto it = regions_.find(address);
  freed_[address] = it->second.size_bytes;
  regions_.erase(it);
  ++generation_;
}

void MemoryMap::SetAccess(uint64_t address, int device, bool reads,
                          bool writes) {
  const std::unique_lock lock(mutex_);
  Region& region = regions_.at(address);
  const uint32_t bit = 1u << device;
  region.readers = reads ? region.readers | bit : region.readers & ~bit;
  region.writers = writes ? region.writers | bit : region.writers & ~bit;
  ++generation_;
}

void MemoryMap::SetPeerAccess(int device, int peer, bool is_allowed) {
  const std::unique_lock lock(mutex_);
  peer_access_[device][peer] = is_allowed;
  const uint32_t bit = 1u << device;
  for (auto& [address, region] : regions_) {
    if (region.kind != RegionKind::kMalloc || region.device != peer) continue;
    region.readers = is_allowed ? region.readers | bit : region.readers & ~bit;
    region.writers = is_allowed ? region.writers | bit : region.writers & ~bit;
  }
  ++generation_;
}

std::vector<Region> MemoryMap::RegionsOf(uint64_t context) const {
  const std::shared_lock lock(mutex_);
  std::vector<Region> found;
  for (const auto& [address, region] : regions_) {
    if (region.context == context) found.push_back(region);
  }
  return found;
}

int MemoryMap::Count(RegionKind kind) const {
  const std::shared_lock lock(mutex_);
  int count = 0;
  for (const auto& [address, region] : regions_) {
    if (region.kind == kind) ++count;
  }
  return count;
}

// Says what is wrong with an address that lies in no region.
std::string MemoryMap::Describe(uint64_t address) const {
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin()) {
    const auto& [begin, size_bytes] = *std::prev(freed);
    if (address - begin < size_bytes) {
      return "freed: it was in the allocation of " +
             std::to_string(size_bytes) + " bytes at " + Hex(begin);
    }
  }
  auto it = regions_.upper_bound(address);
  constexpr uint64_t kNear = uint64_t{2} << 20;
  if (it != regions_.begin()) {
    const Region& before = std::prev(it)->second;
    const uint64_t end = before.address + before.size_bytes;
    if (address - end < kNear) {
      return std::to_string(address - end) + " bytes beyond the end of " +
             AllocationText(before);
    }
  }
  if (it != regions_.end() && it->second.address - address < kNear) {
    return std::to_string(it->second.address - address) + " bytes before " +
           AllocationText(it->second);
  }
  return window_.WasReserved(address) ? "reserved, and nothing is mapped there"
                                      : "no allocation";
}

uint8_t* MemoryMap::Translate(int device, bool has_host_access,
                              uint64_t address, uint64_t size_bytes,
                              Access access, std::string* why) const {
  CacheEntry& entry = cache[(address >> kCachePageBits) % kCacheEntries];
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (entry.map != this || entry.generation != generation ||
      address - entry.region.address >= entry.region.size_bytes) {
    const std::shared_lock lock(mutex_);
    const std::optional<Region> found = FindLocked(address);
    if (!found.has_value()) {
      if (why != nullptr) *why = Describe(address);
      return nullptr;
    }
    entry = {this, generation_.load(std::memory_order_relaxed), *found};
  }
  const Region& region = entry.region;
  const uint64_t offset = address - region.address;
  const uint64_t left = region.size_bytes - offset;
  if (size_bytes > left) {
    if (why != nullptr) {
      *why = std::to_string(size_bytes - left) + " bytes beyond the end of " +
             AllocationText(region);
    }
    return nullptr;
  }
  if (region.device < 0 && !has_host_access) {
    if (why != nullptr) {
      *why = "a kernel in host memory, over the bus: " + AllocationText(region);
    }
    return nullptr;
  }
  const uint32_t bit = 1u << device;
  const bool may_read = access == Access::kWrite || (region.readers & bit) != 0;
  const bool may_write = access == Access::kRead || (region.writers & bit) != 0;
  if (!may_read || !may_write) {
    if (why != nullptr) {
      *why = "no access set for device " + std::to_string(device) + " to " +
             AllocationText(region);
    }
    return nullptr;
  }
  return region.bytes + offset;
}

}  // namespace datasetd::emulated_driver
