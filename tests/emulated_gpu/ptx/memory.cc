#include "tests/emulated_gpu/ptx/memory.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

int LowestLane(uint32_t mask) { return __builtin_ctz(mask); }

absl::string_view SpaceName(Space space) {
  switch (space) {
    case Space::kShared:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kParam:
      return "parameter";
    case Space::kConst:
      return "constant";
    default:
      return "global";
  }
}

absl::string_view AccessName(ShadowAccess access) {
  return access == ShadowAccess::kWrite    ? "write"
         : access == ShadowAccess::kAtomic ? "atomic access"
                                           : "read";
}

// One access of up to 32 lanes in one space. Addresses are offsets in it, of
// kGlobal and kConst device addresses.
struct Request {
  WarpState& warp;
  const MicroOp& op;
  Space space;
  uint32_t mask;
  int size_bytes;
  ShadowAccess access;
  uint64_t used_bytes_mask;
  const uint64_t (&addresses)[kWarpLanes];

  std::string Describe() const {
    return absl::StrCat(AccessName(access), " of ", size_bytes, " bytes in ",
                        SpaceName(space), " memory");
  }

  bool Fail(FaultKind kind, absl::string_view what, int lane) const {
    return warp.Fail(kind, absl::StrCat(Describe(), ": ", what), lane,
                     addresses[lane]);
  }
};

uint64_t Displacement(const WarpState& warp, const MicroOp& op) {
  uint64_t offset = static_cast<uint64_t>(op.immediate);
  if (op.is_local_variable) offset += static_cast<uint64_t>(warp.local_base);
  if (op.is_dynamic_shared) {
    offset += static_cast<uint64_t>(warp.block->launch->static_shared_bytes);
  }
  return offset;
}

void ComputeAddresses(WarpState& warp, const MicroOp& op,
                      uint64_t (&addresses)[kWarpLanes]) {
  const uint64_t offset = Displacement(warp, op);
  if (op.a == kNoOperand) {
    for (uint64_t& address : addresses) address = offset;
  } else if (op.is_address_32) {
    const uint32_t* base = Lanes<uint32_t>(warp, op.a);
    for (int i = 0; i < kWarpLanes; ++i) {
      addresses[i] = static_cast<uint32_t>(base[i] + offset);
    }
  } else {
    const uint64_t* base = Lanes<uint64_t>(warp, op.a);
    for (int i = 0; i < kWarpLanes; ++i) addresses[i] = base[i] + offset;
  }
}

// "Alignment" of ld, st and atom: natural, of the whole vector.
bool CheckAlignment(const Request& request) {
  uint64_t low = 0;
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    low |= request.addresses[LowestLane(m)];
  }
  const uint64_t size = static_cast<uint64_t>(request.size_bytes);
  if ((low & (size - 1)) == 0) return true;
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    if ((request.addresses[lane] & (size - 1)) != 0) {
      return request.Fail(FaultKind::kMisalignedAddress,
                          "the address is not a multiple of the size", lane);
    }
  }
  return true;
}

// Within [first, end) of a window of the executor's own.
bool CheckBounds(const Request& request, uint64_t end) {
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    const uint64_t address = request.addresses[lane];
    const uint64_t size = static_cast<uint64_t>(request.size_bytes);
    if (address >= end || end - address < size) {
      return request.Fail(
          FaultKind::kInvalidAddress,
          absl::StrCat("beyond the ", end, " bytes that there are"), lane);
    }
  }
  return true;
}

bool ReportConflict(const Request& request, const Conflict& conflict,
                    int lane) {
  if (conflict.kind == Conflict::Kind::kUnwritten) {
    return request.Fail(FaultKind::kUninitialised, "nobody has written it",
                        lane);
  }
  const BlockState& block = *request.warp.block;
  std::string other = "several threads";
  if (conflict.lane >= 0) {
    const Segment& segment = block.launch->segments.Get(conflict.other);
    other = absl::StrCat("thread ", segment.warp * kWarpLanes + conflict.lane,
                         segment.block == block.number
                             ? std::string(" of the block")
                             : absl::StrCat(" of block ", segment.block));
  }
  if (conflict.kind == Conflict::Kind::kReadOnlyWritten) {
    return request.Fail(
        FaultKind::kReadOnlyWritten,
        conflict.with_write
            ? absl::StrCat("ld.global.nc of what ", other, " wrote")
            : std::string("other threads read it by ld.global.nc"),
        lane);
  }
  return request.Fail(FaultKind::kRace,
                      absl::StrCat(conflict.with_write ? "written" : "read",
                                   " by ", other, ", with no barrier between"),
                      lane);
}

ShadowPage* FindPage(BlockState& block, uint64_t address) {
  const uint64_t number = address / ShadowPage::kBytes;
  BlockState::CachedPage& cached = block.pages[number % block.pages.size()];
  if (cached.number != number) {
    cached = {number, block.launch->shadow.Page(address)};
  }
  return cached.page;
}

// Races, and in shared memory what is read unwritten.
template <ShadowAccess kAccess>
bool CheckShadowOf(const Request& request) {
  WarpState& warp = request.warp;
  BlockState& block = *warp.block;
  const bool is_shared = request.space == Space::kShared;
  const LaunchConfig& config = *block.launch->config;
  const bool must_be_written = is_shared && config.check_uninitialised;
  const bool takes_locks = !is_shared && config.num_host_threads > 1;
  const SegmentTable& segments = block.launch->segments;
  const uint64_t all = request.size_bytes >= 64
                           ? ~uint64_t{0}
                           : (uint64_t{1} << request.size_bytes) - 1;
  const bool is_whole = (request.used_bytes_mask & all) == all;
  constexpr bool kIsRead =
      kAccess == ShadowAccess::kRead || kAccess == ShadowAccess::kReadOnly;
  uint64_t last_address = ~uint64_t{0};
  int num_same = 0;
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    const uint64_t address = request.addresses[lane];
    // The record tells apart one lane and several, and no more.
    num_same = address == last_address ? num_same + 1 : 0;
    last_address = address;
    if (kIsRead && num_same >= 2) continue;
    ShadowPage* page = is_shared
                           ? &block.shared_shadow[address / ShadowPage::kBytes]
                           : FindPage(block, address);
    const int offset = static_cast<int>(address % ShadowPage::kBytes);
    if (takes_locks) {
      while (page->lock.test_and_set(std::memory_order_acquire)) {
      }
    }
    const auto apply = [&](int first, int length) {
      return page->Apply<kAccess>(segments, offset + first, length,
                                  must_be_written, warp.segment, lane);
    };
    Conflict conflict;
    if (is_whole) {
      conflict = apply(0, request.size_bytes);
    } else {
      // Runs of bytes that are used.
      for (uint64_t used = request.used_bytes_mask & all;
           used != 0 && conflict.kind == Conflict::Kind::kNone;) {
        const int first = __builtin_ctzll(used);
        const uint64_t rest = ~(used >> first);
        const int length = rest == 0 ? 64 : __builtin_ctzll(rest);
        conflict = apply(first, length);
        used = length + first >= 64
                   ? 0
                   : used >> (first + length) << (first + length);
      }
    }
    if (takes_locks) page->lock.clear(std::memory_order_release);
    if (conflict.kind != Conflict::Kind::kNone) {
      return ReportConflict(request, conflict, lane);
    }
  }
  return true;
}

bool CheckShadow(const Request& request) {
  switch (request.access) {
    case ShadowAccess::kRead:
      return CheckShadowOf<ShadowAccess::kRead>(request);
    case ShadowAccess::kReadOnly:
      return CheckShadowOf<ShadowAccess::kReadOnly>(request);
    case ShadowAccess::kWrite:
      return CheckShadowOf<ShadowAccess::kWrite>(request);
    case ShadowAccess::kAtomic:
      break;
  }
  return CheckShadowOf<ShadowAccess::kAtomic>(request);
}

bool CheckLocal(const Request& request) {
  WarpState& warp = request.warp;
  if (!warp.block->launch->config->check_local) return true;
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    uint8_t* written = warp.local_written.data() + lane * warp.local_stride +
                       request.addresses[lane];
    if (request.access != ShadowAccess::kRead) {
      std::memset(written, 1, request.size_bytes);
    } else {
      int i = 0;
      for (uint32_t flags; i + 4 <= request.size_bytes; i += 4) {
        std::memcpy(&flags, written + i, sizeof(flags));
        if (flags != 0x01010101u) break;
      }
      for (; i < request.size_bytes; ++i) {
        if (written[i] == 0 && (request.used_bytes_mask >> i & 1) != 0) {
          return request.Fail(FaultKind::kUninitialised,
                              "the thread has not written it", lane);
        }
      }
    }
  }
  return true;
}

// Distinct values of `values`, which is sorted.
int CountDistinct(uint64_t* values, int count) {
  std::sort(values, values + count);
  return static_cast<int>(std::unique(values, values + count) - values);
}

// "Shared Memory" of the CUDA C++ Programming Guide: 32 banks of 4 bytes; lanes
// that touch one word share it. Accesses of 8 and 16 bytes go by halves and
// quarters of a warp.
int CountWavefronts(const Request& request) {
  const int words = std::max(request.size_bytes / 4, 1);
  const int lanes_each = kWarpLanes / words;
  int wavefronts = 0;
  for (int first = 0; first < kWarpLanes; first += lanes_each) {
    uint64_t touched[kWarpLanes];
    int count = 0;
    for (int lane = first; lane < first + lanes_each; ++lane) {
      if ((request.mask >> lane & 1) == 0) continue;
      for (int k = 0; k < words; ++k) {
        touched[count++] = request.addresses[lane] / 4 + k;
      }
    }
    count = CountDistinct(touched, count);
    int in_bank[32] = {};
    int most = 0;
    for (int i = 0; i < count; ++i) {
      most = std::max(most, ++in_bank[touched[i] % 32]);
    }
    wavefronts += most;
  }
  return wavefronts;
}

void Count(const Request& request) {
  WarpState& warp = request.warp;
  AccessCount count;
  count.requests = 1;
  const bool is_load = request.access == ShadowAccess::kRead ||
                       request.access == ShadowAccess::kReadOnly;
  AccessClass access_class = AccessClass::kAtomic;
  if (request.space == Space::kLocal) {
    access_class = is_load ? AccessClass::kLocalLoad : AccessClass::kLocalStore;
    count.words = (request.size_bytes + 3) / 4;
  } else if (request.space == Space::kShared) {
    access_class =
        is_load ? AccessClass::kSharedLoad : AccessClass::kSharedStore;
    count.wavefronts = CountWavefronts(request);
  } else {
    access_class =
        is_load ? AccessClass::kGlobalLoad : AccessClass::kGlobalStore;
    uint64_t starts[kWarpLanes];
    int num_lanes = 0;
    for (uint32_t m = request.mask; m != 0; m &= m - 1) {
      starts[num_lanes++] = request.addresses[LowestLane(m)];
    }
    const int distinct = CountDistinct(starts, num_lanes);
    const uint64_t bytes = static_cast<uint64_t>(distinct) * request.size_bytes;
    count.lines_needed = (bytes + 127) / 128;
    count.sectors_needed = (bytes + 31) / 32;
    for (int i = 0; i < distinct; ++i) {
      count.sectors += i == 0 || starts[i] / 32 != starts[i - 1] / 32;
      count.lines += i == 0 || starts[i] / 128 != starts[i - 1] / 128;
    }
  }
  if (request.access == ShadowAccess::kAtomic) {
    access_class = AccessClass::kAtomic;
  }
  warp.block->accesses[static_cast<int>(access_class)].Add(count);
  warp.block->op_accesses[warp.function][warp.op_index].Add(count);
}

bool ResolveGlobal(const Request& request, uint8_t* (&hosts)[kWarpLanes]) {
  WarpState& warp = request.warp;
  BlockState& block = *warp.block;
  const Access access = request.access == ShadowAccess::kWrite ? Access::kWrite
                        : request.access == ShadowAccess::kAtomic
                            ? Access::kReadWrite
                            : Access::kRead;
  const uint64_t size = static_cast<uint64_t>(request.size_bytes);
  uint64_t first = ~uint64_t{0};
  uint64_t last = 0;
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    first = std::min(first, request.addresses[LowestLane(m)]);
    last = std::max(last, request.addresses[LowestLane(m)]);
  }
  constexpr uint64_t kTogether = 4096;
  uint8_t* host = nullptr;
  if (last - first < kTogether) {
    host = block.translations.Translate(*block.launch->memory, first,
                                        last - first + size, access, nullptr);
  }
  if (host != nullptr) {
    for (uint32_t m = request.mask; m != 0; m &= m - 1) {
      const int lane = LowestLane(m);
      hosts[lane] = host + (request.addresses[lane] - first);
    }
    return true;
  }
  for (uint32_t m = request.mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    std::string why;
    hosts[lane] = block.translations.Translate(
        *block.launch->memory, request.addresses[lane], size, access, &why);
    if (hosts[lane] == nullptr) {
      return request.Fail(FaultKind::kInvalidAddress, why, lane);
    }
  }
  return true;
}

// Where the bytes of each lane are, after all checks.
bool ResolveSpace(const Request& request, uint8_t* (&hosts)[kWarpLanes]) {
  WarpState& warp = request.warp;
  BlockState& block = *warp.block;
  LaunchState& launch = *block.launch;
  const bool is_write = request.access == ShadowAccess::kWrite ||
                        request.access == ShadowAccess::kAtomic;
  if (!CheckAlignment(request)) return false;
  switch (request.space) {
    case Space::kShared:
      if (!CheckBounds(request, block.shared.size())) return false;
      if (launch.config->check_races && !CheckShadow(request)) return false;
      for (uint32_t m = request.mask; m != 0; m &= m - 1) {
        const int lane = LowestLane(m);
        hosts[lane] = block.shared.data() + request.addresses[lane];
      }
      break;
    case Space::kLocal:
      if (!CheckBounds(request, warp.local_top) || !CheckLocal(request)) {
        return false;
      }
      for (uint32_t m = request.mask; m != 0; m &= m - 1) {
        const int lane = LowestLane(m);
        hosts[lane] = warp.local.data() + lane * warp.local_stride +
                      request.addresses[lane];
      }
      break;
    case Space::kParam:
      if (is_write) {
        return request.Fail(FaultKind::kInvalidAddress,
                            "parameters cannot be written",
                            LowestLane(request.mask));
      }
      if (!CheckBounds(request, launch.parameters.size())) return false;
      for (uint32_t m = request.mask; m != 0; m &= m - 1) {
        const int lane = LowestLane(m);
        hosts[lane] = const_cast<uint8_t*>(launch.parameters.data()) +
                      request.addresses[lane];
      }
      return true;  // no request to memory
    default: {
      const uint64_t window = request.addresses[LowestLane(request.mask)] >>
                              kWindowShift << kWindowShift;
      if (window == kModuleWindow) {
        for (uint32_t m = request.mask; m != 0; m &= m - 1) {
          const int lane = LowestLane(m);
          const uint64_t offset = request.addresses[lane] - kModuleWindow;
          if (offset >= launch.module_variables.size() ||
              launch.module_variables.size() - offset <
                  static_cast<uint64_t>(request.size_bytes)) {
            return request.Fail(FaultKind::kInvalidAddress,
                                "beyond the module's variables", lane);
          }
          hosts[lane] = launch.module_variables.data() + offset;
        }
      } else if (!ResolveGlobal(request, hosts)) {
        return false;
      }
      if (launch.config->check_races && !CheckShadow(request)) return false;
      break;
    }
  }
  if (launch.config->count_accesses) Count(request);
  return true;
}

// "Generic Addressing": lanes may be in several spaces.
bool Resolve(WarpState& warp, const MicroOp& op, uint32_t mask, int size_bytes,
             ShadowAccess access, uint64_t used_bytes_mask,
             uint8_t* (&hosts)[kWarpLanes]) {
  uint64_t addresses[kWarpLanes];
  ComputeAddresses(warp, op, addresses);
  if (op.space != Space::kGeneric) {
    return ResolveSpace({warp, op, op.space, mask, size_bytes, access,
                         used_bytes_mask, addresses},
                        hosts);
  }
  while (mask != 0) {
    const uint64_t window = addresses[LowestLane(mask)] >> kWindowShift
                                                               << kWindowShift;
    Space space = Space::kGlobal;
    uint64_t base = 0;
    if (window == kSharedWindow || window == kLocalWindow ||
        window == kParamWindow) {
      space = window == kSharedWindow  ? Space::kShared
              : window == kLocalWindow ? Space::kLocal
                                       : Space::kParam;
      base = window;
    }
    uint32_t group = 0;
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const int lane = LowestLane(m);
      if (addresses[lane] >> kWindowShift << kWindowShift != window) continue;
      group |= uint32_t{1} << lane;
      addresses[lane] -= base;
    }
    if (!ResolveSpace({warp, op, space, group, size_bytes, access,
                       used_bytes_mask, addresses},
                      hosts)) {
      return false;
    }
    mask &= ~group;
  }
  return true;
}

template <typename R, typename M>
void LoadLanes(R* to, uint8_t* const (&hosts)[kWarpLanes], int offset,
               uint32_t mask) {
  for (; mask != 0; mask &= mask - 1) {
    const int lane = LowestLane(mask);
    M value;
    std::memcpy(&value, hosts[lane] + offset, sizeof(value));
    to[lane] = static_cast<R>(value);
  }
}

// "Operand Size Exceeding Instruction-Type Size": narrower values are extended
// by zeros, those of signed types by their sign.
template <typename R>
void LoadRegister(R* to, const MicroOp& op, uint8_t* const (&hosts)[kWarpLanes],
                  int offset, uint32_t mask) {
  switch (op.element_bytes) {
    case 1:
      return op.is_signed ? LoadLanes<R, int8_t>(to, hosts, offset, mask)
                          : LoadLanes<R, uint8_t>(to, hosts, offset, mask);
    case 2:
      return op.is_signed ? LoadLanes<R, int16_t>(to, hosts, offset, mask)
                          : LoadLanes<R, uint16_t>(to, hosts, offset, mask);
    case 4:
      return op.is_signed ? LoadLanes<R, int32_t>(to, hosts, offset, mask)
                          : LoadLanes<R, uint32_t>(to, hosts, offset, mask);
    default:
      return LoadLanes<R, uint64_t>(to, hosts, offset, mask);
  }
}

void LoadElements(WarpState& warp, const MicroOp& op, uint32_t mask,
                  uint8_t* const (&hosts)[kWarpLanes]) {
  const std::vector<OperandRef>& data = warp.code->vectors[op.side];
  for (int k = 0; k < op.num_elements; ++k) {
    const OperandRef ref = data[k];
    if (ref == kNoOperand) continue;  // _
    const int offset = k * op.element_bytes;
    switch (op.register_bytes) {
      case 2:
        LoadRegister(Lanes<uint16_t>(warp, ref), op, hosts, offset, mask);
        break;
      case 4:
        LoadRegister(Lanes<uint32_t>(warp, ref), op, hosts, offset, mask);
        break;
      default:
        LoadRegister(Lanes<uint64_t>(warp, ref), op, hosts, offset, mask);
        break;
    }
  }
}

// Calls it with a value of an unsigned type of `bytes` bytes.
template <typename F>
void WithWord(int bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// The low bytes of the registers.
void StoreElements(WarpState& warp, const MicroOp& op, uint32_t mask,
                   uint8_t* const (&hosts)[kWarpLanes]) {
  const std::vector<OperandRef>& data = warp.code->vectors[op.side];
  for (int k = 0; k < op.num_elements; ++k) {
    const uint8_t* const from = Lanes<uint8_t>(warp, data[k]);
    WithWord(op.element_bytes, [&](auto word) {
      const int offset = k * static_cast<int>(sizeof(word));
      const int stride = op.register_bytes;
      for (uint32_t m = mask; m != 0; m &= m - 1) {
        const int lane = LowestLane(m);
        std::memcpy(&word, from + lane * stride, sizeof(word));
        std::memcpy(hosts[lane] + offset, &word, sizeof(word));
      }
    });
  }
}

void FindArea(WarpState& warp, const MicroOp& op,
              uint8_t* (&hosts)[kWarpLanes]) {
  uint8_t* area = Lanes<uint8_t>(warp, op.e) + op.immediate;
  for (int i = 0; i < kWarpLanes; ++i) hosts[i] = area + i * op.reconverge;
}

void CopyLanes(uint8_t* to, const uint8_t* from, int bytes, uint32_t mask) {
  WithWord(bytes, [&](auto word) {
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const size_t at = LowestLane(m) * sizeof(word);
      std::memcpy(&word, from + at, sizeof(word));
      std::memcpy(to + at, &word, sizeof(word));
    }
  });
}

template <typename T>
T Combine(AtomicOp op, T old, T b, T c) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case AtomicOp::kAdd:
      return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
    case AtomicOp::kMin:
      return std::min(old, b);
    case AtomicOp::kMax:
      return std::max(old, b);
    case AtomicOp::kAnd:
      return old & b;
    case AtomicOp::kOr:
      return old | b;
    case AtomicOp::kXor:
      return old ^ b;
    case AtomicOp::kExchange:
      return b;
    case AtomicOp::kCompareAndSwap:
      return old == b ? c : old;
    case AtomicOp::kIncrement:
      return old >= b ? T{0} : old + 1;
    case AtomicOp::kDecrement:
      return old == 0 || old > b ? b : old - 1;
  }
  return old;
}

// "atom": lane after lane.
template <typename T>
bool RunAtomic(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t* hosts[kWarpLanes];
  if (!Resolve(warp, op, mask, sizeof(T), ShadowAccess::kAtomic, ~uint64_t{0},
               hosts)) {
    return false;
  }
  const T* b = Lanes<T>(warp, op.b);
  const T* c = op.c == kNoOperand ? b : Lanes<T>(warp, op.c);
  T result[kWarpLanes] = {};
  const AtomicOp kind = static_cast<AtomicOp>(op.variant);
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = LowestLane(m);
    std::atomic_ref<T> at(*reinterpret_cast<T*>(hosts[lane]));
    T old = at.load();
    while (!at.compare_exchange_weak(old,
                                     Combine<T>(kind, old, b[lane], c[lane]))) {
    }
    result[lane] = old;
  }
  if (op.d != kNoOperand) Commit(warp, op.d, result, mask);
  return true;
}

}  // namespace

bool RunLoad(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t* hosts[kWarpLanes];
  const uint64_t used =
      op.target < 0 ? ~uint64_t{0} : warp.code->used_bytes_masks[op.target];
  if (!Resolve(warp, op, mask, op.element_bytes * op.num_elements,
               op.is_read_only ? ShadowAccess::kReadOnly : ShadowAccess::kRead,
               used, hosts)) {
    return false;
  }
  LoadElements(warp, op, mask, hosts);
  return true;
}

bool RunStore(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t* hosts[kWarpLanes];
  if (!Resolve(warp, op, mask, op.element_bytes * op.num_elements,
               ShadowAccess::kWrite, ~uint64_t{0}, hosts)) {
    return false;
  }
  StoreElements(warp, op, mask, hosts);
  return true;
}

bool RunLoadArea(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t* hosts[kWarpLanes];
  FindArea(warp, op, hosts);
  LoadElements(warp, op, mask, hosts);
  return true;
}

bool RunStoreArea(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t* hosts[kWarpLanes];
  FindArea(warp, op, hosts);
  StoreElements(warp, op, mask, hosts);
  return true;
}

Handler AtomicHandler(AtomicOp op, Type type) {
  const bool is_unsigned_only =
      op == AtomicOp::kIncrement || op == AtomicOp::kDecrement;
  switch (type) {
    case Type::kU32:
    case Type::kB32:
      return &RunAtomic<uint32_t>;
    case Type::kU64:
    case Type::kB64:
      return is_unsigned_only ? nullptr : &RunAtomic<uint64_t>;
    case Type::kS32:
      return is_unsigned_only ? nullptr : &RunAtomic<int32_t>;
    case Type::kS64:
      return is_unsigned_only ? nullptr : &RunAtomic<int64_t>;
    default:
      return nullptr;
  }
}

bool RunMoveAddress(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const uint64_t value = Displacement(warp, op);
  if (op.register_bytes == 4) {
    uint32_t result[kWarpLanes];
    std::fill_n(result, kWarpLanes, static_cast<uint32_t>(value));
    Commit(warp, op.d, result, mask);
  } else {
    uint64_t result[kWarpLanes];
    std::fill_n(result, kWarpLanes, value);
    Commit(warp, op.d, result, mask);
  }
  return true;
}

bool RunPack(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t result[kWarpLanes * 8] = {};
  const std::vector<OperandRef>& parts = warp.code->vectors[op.side];
  for (size_t k = 0; k < parts.size(); ++k) {
    const uint8_t* from = Lanes<uint8_t>(warp, parts[k]);
    for (int i = 0; i < kWarpLanes; ++i) {
      std::memcpy(result + i * op.register_bytes + k * op.element_bytes,
                  from + i * op.element_bytes, op.element_bytes);
    }
  }
  CopyLanes(Lanes<uint8_t>(warp, op.a), result, op.register_bytes, mask);
  return true;
}

bool RunUnpack(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint8_t whole[kWarpLanes * 8];
  std::memcpy(whole, Lanes<uint8_t>(warp, op.a),
              kWarpLanes * op.register_bytes);
  const std::vector<OperandRef>& parts = warp.code->vectors[op.side];
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k] == kNoOperand) continue;
    uint8_t result[kWarpLanes * 8];
    for (int i = 0; i < kWarpLanes; ++i) {
      std::memcpy(result + i * op.element_bytes,
                  whole + i * op.register_bytes + k * op.element_bytes,
                  op.element_bytes);
    }
    CopyLanes(Lanes<uint8_t>(warp, parts[k]), result, op.element_bytes, mask);
  }
  return true;
}

bool RunConvertAddress(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const uint64_t* a = Lanes<uint64_t>(warp, op.a);
  uint64_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = a[i] + static_cast<uint64_t>(op.immediate);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

}  // namespace datasetd::emulated_gpu
