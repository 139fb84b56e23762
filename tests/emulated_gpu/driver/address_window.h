// Device addresses of this process. A range is handed out once and never
// again, so that a use after free is found; the host cannot read it. The bytes
// behind it are mapped at an alias, which only the emulator knows. Not
// thread-safe.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_ADDRESS_WINDOW_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_ADDRESS_WINDOW_H_

#include <cstdint>
#include <vector>

namespace datasetd::emulated_driver {

// Both are 0 where there is no address space left.
struct AddressRange {
  uint64_t device = 0;
  uint64_t alias = 0;
};

class AddressWindow {
 public:
  // Reserves addresses with nothing behind them yet: neither alias nor device
  // address can be touched. REQUIRES: `alignment` is a power of two.
  AddressRange Reserve(uint64_t size_bytes, uint64_t alignment);

  // True for an address that was handed out once.
  bool WasReserved(uint64_t address) const;

 private:
  struct Chunk {
    uint64_t device;
    uint64_t size_bytes;
    uint64_t used_bytes;
  };

  std::vector<Chunk> chunks_;
};

// Shows the file at the alias. False where the system refuses.
bool MapAlias(uint64_t alias, uint64_t size_bytes, int fd,
              uint64_t offset_bytes);

// Shows nothing of the file any more. Work that still runs reads zeros.
void UnmapAlias(uint64_t alias, uint64_t size_bytes);

// Lets the host touch the device addresses themselves: pinned memory.
bool MapForHost(uint64_t device, uint64_t size_bytes);
void UnmapForHost(uint64_t device, uint64_t size_bytes);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_ADDRESS_WINDOW_H_
