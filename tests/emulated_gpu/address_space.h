// Translates device addresses for a kernel that runs in one context of the
// emulated GPU. The emulated driver implements it over its allocations; the PTX
// executor asks it before each access. Thread-safe.

#ifndef DATASETD_TESTS_EMULATED_GPU_ADDRESS_SPACE_H_
#define DATASETD_TESTS_EMULATED_GPU_ADDRESS_SPACE_H_

#include <cstdint>
#include <string>

namespace datasetd::emulated_gpu {

enum class Access { kRead, kWrite, kReadWrite };

class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  // The host bytes behind [address, address + size_bytes), if these lie in one
  // live allocation that the device may access so. They stay valid until the
  // launch that asked has ended, whatever is freed meanwhile. Else nullptr, and
  // `why`, which may be null, says what is there: "no allocation", "freed",
  // "4 bytes beyond the end of the allocation of 64 bytes at 0x7f0000000000",
  // "no access set".
  virtual uint8_t* Translate(uint64_t address, uint64_t size_bytes,
                             Access access, std::string* why) = 0;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_ADDRESS_SPACE_H_
