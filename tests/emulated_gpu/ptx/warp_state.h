// The state of the warp, block and launch that execute an instruction.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_WARP_STATE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_WARP_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulated_gpu/address_space.h"
#include "tests/emulated_gpu/ptx/counters.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/shadow.h"

namespace datasetd::emulated_gpu {

struct ModuleCode;

// One for each launch.
struct LaunchState {
  const ModuleCode* module = nullptr;
  const FunctionCode* kernel = nullptr;
  const LaunchConfig* config = nullptr;
  absl::Span<const uint8_t> parameters;
  absl::Span<uint8_t> module_variables;
  AddressSpace* memory = nullptr;
  int64_t static_shared_bytes = 0;
  SegmentTable segments;
  ShadowMemory shadow;
};

// Stretches of device memory that were translated. Not thread-safe.
class TranslationCache {
 public:
  // As AddressSpace::Translate.
  uint8_t* Translate(AddressSpace& memory, uint64_t address,
                     uint64_t size_bytes, Access access, std::string* why);
  void Clear() { entries_ = {}; }

 private:
  struct Entry {
    uint64_t first = 0;
    uint64_t end = 0;
    uint8_t* host = nullptr;
    bool may_write = false;
  };
  std::array<Entry, 16> entries_ = {};
  size_t next_ = 0;
};

// Counts of one op, summed over warps.
struct OpCount {
  uint64_t warps = 0;
  uint64_t lanes = 0;
};
struct OpAccessCount {
  AccessCount loads;
  AccessCount stores;
};

// One for each host thread, for all blocks it runs.
struct BlockState {
  LaunchState* launch = nullptr;
  TranslationCache translations;
  Dim3 index;
  uint32_t number = 0;
  int num_threads = 0;
  std::vector<uint8_t> shared;
  std::vector<ShadowPage> shared_shadow;
  uint32_t barrier_count = 0;
  // The last device pages, so that most accesses need no lock.
  struct CachedPage {
    uint64_t number = ~uint64_t{0};
    ShadowPage* page = nullptr;
  };
  std::array<CachedPage, 256> pages = {};
  // [function][op].
  std::vector<std::vector<OpCount>> op_counts;
  std::vector<std::vector<AccessCount>> op_accesses;
  std::array<AccessCount, 7> accesses = {};  // in the order of Counters
  uint64_t divergent_branches = 0;
};

struct CallFrame {
  const FunctionCode* code = nullptr;
  int function = 0;
  int return_op = 0;
  uint32_t mask = 0;
  size_t stack_base = 0;
  int64_t local_base = 0;
};

struct StackEntry {
  int op = 0;
  int reconverge = -1;
  uint32_t mask = 0;
};

struct WarpState {
  // By bit 31 of an OperandRef.
  uint8_t* bank[2] = {nullptr, nullptr};
  const FunctionCode* code = nullptr;
  BlockState* block = nullptr;
  int function = 0;
  int op_index = 0;
  int64_t local_base = 0;
  int64_t local_top = 0;  // of all frames

  int number = 0;     // in the block
  uint32_t live = 0;  // lanes that exist and have not exited
  std::vector<StackEntry> stack;
  std::vector<CallFrame> frames;
  std::vector<std::unique_ptr<uint8_t[]>> frame_memory;  // by depth
  std::vector<size_t> frame_capacity;
  std::vector<uint8_t> local;          // [lane][kLocalBytes in use]
  std::vector<uint8_t> local_written;  // likewise, a flag for each byte
  int64_t local_stride = 0;
  uint32_t carry = 0;  // CC.CF, a bit a lane
  uint32_t warp_sync_count = 0;
  SegmentId segment = 0;
  int barrier = -1;      // the one it waits at
  int barrier_line = 0;  // its PTX line
  std::array<std::array<uint16_t, kWarpLanes>, 3> tid = {};

  bool has_fault = false;
  bool has_too_many_segments = false;
  Fault fault;

  // Makes the fault of `lane`, with where it is; returns false.
  bool Fail(FaultKind kind, std::string message, int lane,
            uint64_t address = 0);
};

// The 32 lanes of an operand. The same bytes hold integers and floats: built
// with -fno-strict-aliasing.
template <typename T>
inline T* Lanes(WarpState& warp, OperandRef ref) {
  return reinterpret_cast<T*>(warp.bank[ref >> 31] + (ref & ~kConstantBank));
}

// Predicates are one word, a bit a lane.
inline uint32_t& PredicateBits(WarpState& warp, OperandRef ref) {
  return *Lanes<uint32_t>(warp, ref);
}

template <typename T>
inline void Commit(WarpState& warp, OperandRef to, const T (&from)[kWarpLanes],
                   uint32_t mask) {
  T* lanes = Lanes<T>(warp, to);
  if (mask == kAllLanes) {
    for (int i = 0; i < kWarpLanes; ++i) lanes[i] = from[i];
    return;
  }
  for (; mask != 0; mask &= mask - 1) {
    const int i = __builtin_ctz(mask);
    lanes[i] = from[i];
  }
}

inline void CommitPredicate(WarpState& warp, OperandRef to, uint32_t bits,
                            uint32_t mask) {
  uint32_t& predicate = PredicateBits(warp, to);
  predicate = (predicate & ~mask) | (bits & mask);
}

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_WARP_STATE_H_
