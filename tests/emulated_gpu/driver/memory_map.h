// The live memory of this process by device address: who may use it, and the
// host bytes behind it. Thread-safe, and holds no lock while it calls anything.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_MAP_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_MAP_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tests/emulated_gpu/address_space.h"
#include "tests/emulated_gpu/driver/address_window.h"
#include "tests/emulated_gpu/driver/settings.h"

namespace datasetd::emulated_driver {

using emulated_gpu::Access;
using emulated_gpu::AddressSpace;

enum class RegionKind {
  kMalloc,      // cuMemAlloc
  kIpc,         // cuIpcOpenMemHandle
  kMapped,      // cuMemMap
  kHostAlloc,   // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
};

struct Region {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint8_t* bytes = nullptr;
  RegionKind kind = RegionKind::kMalloc;
  // The device that has the memory; -1 for host memory.
  int device = -1;
  // A bit for each device that may read or write it.
  uint32_t readers = 0;
  uint32_t writers = 0;
  // The context that made it, if it ends with one.
  uint64_t context = 0;
};

class MemoryMap {
 public:
  // Kernels may use pinned host memory only if `has_host_access`.
  explicit MemoryMap(bool has_host_access);
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  AddressRange Reserve(uint64_t size_bytes, uint64_t alignment);

  void Insert(const Region& region);
  // The region that holds the address.
  std::optional<Region> Find(uint64_t address) const;
  // The region whose bytes hold this host address.
  std::optional<Region> FindHost(const void* address) const;
  // Some part of the host range is pinned.
  bool OverlapsHost(const void* begin, uint64_t size_bytes) const;
  // REQUIRES: a region begins there.
  void Erase(uint64_t address);
  // Lets `device` read and write the region, or not. REQUIRES as above.
  void SetAccess(uint64_t address, int device, bool reads, bool writes);
  // Lets `device` use all memory of cuMemAlloc of `peer`, or not.
  void SetPeerAccess(int device, int peer, bool is_allowed);
  std::vector<Region> RegionsOf(uint64_t context) const;
  int Count(RegionKind kind) const;

  // As a device sees it, and as its kernels do. Live as long as this.
  AddressSpace& ViewOf(int device);
  AddressSpace& KernelViewOf(int device);

 private:
  class View;

  std::optional<Region> FindLocked(uint64_t address) const;
  std::string Describe(uint64_t address) const;
  uint8_t* Translate(int device, bool has_host_access, uint64_t address,
                     uint64_t size_bytes, Access access,
                     std::string* why) const;

  mutable std::shared_mutex mutex_;
  AddressWindow window_;
  std::map<uint64_t, Region> regions_;
  // Sizes by address.
  std::map<uint64_t, uint64_t> freed_;
  // [device][peer]
  bool peer_access_[kMaxDevices][kMaxDevices] = {};
  // Changes with every change of regions_.
  std::atomic<uint64_t> generation_ = 1;
  std::vector<std::unique_ptr<View>> views_;
  std::vector<std::unique_ptr<View>> kernel_views_;
};

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_MAP_H_
