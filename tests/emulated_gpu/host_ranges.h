// An address space in which device addresses are host addresses: what a test
// has added, and nothing else.

#ifndef DATASETD_TESTS_EMULATED_GPU_HOST_RANGES_H_
#define DATASETD_TESTS_EMULATED_GPU_HOST_RANGES_H_

#include <cstdint>
#include <map>
#include <string>

#include "tests/emulated_gpu/address_space.h"

namespace datasetd::emulated_gpu {

// Thread-safe once all is added.
class HostRanges : public AddressSpace {
 public:
  // [data, data + size_bytes), which must outlive this and meet no other.
  void AddReadable(const void* data, int64_t size_bytes) {
    Add(data, size_bytes, false);
  }
  void AddWritable(void* data, int64_t size_bytes) {
    Add(data, size_bytes, true);
  }

  uint8_t* Translate(uint64_t address, uint64_t size_bytes, Access access,
                     std::string* why) override;

 private:
  struct Range {
    uint64_t size_bytes = 0;
    bool may_write = false;
  };

  void Add(const void* data, int64_t size_bytes, bool may_write) {
    ranges_[reinterpret_cast<uint64_t>(data)] = {
        static_cast<uint64_t>(size_bytes), may_write};
  }

  std::map<uint64_t, Range> ranges_;  // by first address
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_HOST_RANGES_H_
