#include "tests/emulated_gpu/host_ranges.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd::emulated_gpu {

uint8_t* HostRanges::Translate(uint64_t address, uint64_t size_bytes,
                               Access access, std::string* why) {
  const auto fail = [why](std::string text) -> uint8_t* {
    if (why != nullptr) *why = std::move(text);
    return nullptr;
  };
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) return fail("no allocation");
  --range;
  const uint64_t offset = address - range->first;
  const Range& found = range->second;
  if (offset + size_bytes > found.size_bytes) {
    return fail(absl::StrCat(offset + size_bytes - found.size_bytes,
                             " bytes beyond the end of the allocation of ",
                             found.size_bytes, " bytes at 0x",
                             absl::Hex(range->first)));
  }
  if (access != Access::kRead && !found.may_write) {
    return fail("the allocation is read-only");
  }
  return reinterpret_cast<uint8_t*>(address);
}

}  // namespace datasetd::emulated_gpu
