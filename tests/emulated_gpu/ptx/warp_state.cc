#include "tests/emulated_gpu/ptx/warp_state.h"

#include <string>
#include <utility>

#include "tests/emulated_gpu/ptx/module_code.h"

namespace datasetd::emulated_gpu {
namespace {

// Allocations are multiples of this, so that a translation often holds for the
// neighbours of what was asked for.
constexpr uint64_t kStretch = 4096;

}  // namespace

uint8_t* TranslationCache::Translate(AddressSpace& memory, uint64_t address,
                                     uint64_t size_bytes, Access access,
                                     std::string* why) {
  for (const Entry& entry : entries_) {
    if (address >= entry.first && address + size_bytes <= entry.end &&
        (entry.may_write || access == Access::kRead)) {
      return entry.host + (address - entry.first);
    }
  }
  const uint64_t first = address / kStretch * kStretch;
  const uint64_t end =
      (address + size_bytes + kStretch - 1) / kStretch * kStretch;
  const bool may_write = access != Access::kRead;
  Entry& entry = entries_[next_];
  if (uint8_t* host = memory.Translate(first, end - first, access, nullptr);
      host != nullptr) {
    entry = {first, end, host, may_write};
  } else if (host = memory.Translate(address, size_bytes, access, why);
             host != nullptr) {
    entry = {address, address + size_bytes, host, may_write};
  } else {
    return nullptr;
  }
  next_ = (next_ + 1) % entries_.size();
  return entry.host + (address - entry.first);
}

bool WarpState::Fail(FaultKind kind, std::string message, int lane,
                     uint64_t address) {
  const int op = op_index;
  has_fault = true;
  fault = Fault();
  fault.kind = kind;
  fault.message = std::move(message);
  fault.kernel = block->launch->kernel->name;
  fault.function = code->name;
  fault.block = block->index;
  fault.thread = {tid[0][lane], tid[1][lane], tid[2][lane]};
  fault.address = address;
  fault.ptx_line = code->lines[op];
  fault.source = SourceLines(*block->launch->module, code->locations[op]);
  return false;
}

}  // namespace datasetd::emulated_gpu
