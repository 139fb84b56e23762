#include "tests/emulated_gpu/ptx/exchange.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

// The .sync forms wait for all lanes of the member mask; here all of them must
// be together, and each must name itself.
bool CheckMembers(WarpState& warp, OperandRef members_ref, uint32_t mask) {
  const uint32_t* members = Lanes<uint32_t>(warp, members_ref);
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    if ((members[lane] & warp.live) != mask) {
      return warp.Fail(
          FaultKind::kDivergentBarrier,
          absl::StrCat("the member mask is ", absl::Hex(members[lane]),
                       ", the active lanes are ", absl::Hex(mask)),
          lane);
    }
  }
  return true;
}

bool SyncWarp(WarpState& warp, uint32_t mask) {
  if (mask != warp.live) return true;
  ++warp.warp_sync_count;
  return BeginSegment(warp);
}

}  // namespace

bool BeginSegment(WarpState& warp) {
  const BlockState& block = *warp.block;
  if (!block.launch->config->check_races) return true;
  warp.segment = block.launch->segments.Add({block.number, block.barrier_count,
                                             static_cast<uint32_t>(warp.number),
                                             warp.warp_sync_count});
  warp.has_too_many_segments = warp.segment == 0;
  return warp.segment != 0;
}

// "shfl.sync".
bool RunShuffle(WarpState& warp, const MicroOp& op, uint32_t mask) {
  if (!CheckMembers(warp, static_cast<OperandRef>(op.target), mask)) {
    return false;
  }
  const uint32_t* a = Lanes<uint32_t>(warp, op.a);
  const uint32_t* b = Lanes<uint32_t>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  uint32_t result[kWarpLanes] = {};
  uint32_t predicate = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    const int amount = static_cast<int>(b[lane] & 31);
    const int clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int max_lane = (lane & segment) | (clamp & ~segment);
    const int min_lane = lane & segment;
    int from = 0;
    bool is_inside = false;
    switch (static_cast<ShuffleMode>(op.variant)) {
      case ShuffleMode::kUp:
        from = lane - amount;
        is_inside = from >= max_lane;
        break;
      case ShuffleMode::kDown:
        from = lane + amount;
        is_inside = from <= max_lane;
        break;
      case ShuffleMode::kButterfly:
        from = lane ^ amount;
        is_inside = from <= max_lane;
        break;
      case ShuffleMode::kIndex:
        from = min_lane | (amount & ~segment);
        is_inside = from <= max_lane;
        break;
    }
    if (!is_inside) from = lane;
    if ((mask >> from & 1) == 0) {
      return warp.Fail(
          FaultKind::kUninitialised,
          absl::StrCat("shfl from lane ", from, ", which does not take part"),
          lane);
    }
    result[lane] = a[from];
    if (is_inside) predicate |= uint32_t{1} << lane;
  }
  Commit(warp, op.d, result, mask);
  if (op.e != kNoOperand) CommitPredicate(warp, op.e, predicate, mask);
  return SyncWarp(warp, mask);
}

// "vote.sync".
bool RunVote(WarpState& warp, const MicroOp& op, uint32_t mask) {
  if (!CheckMembers(warp, op.b, mask)) return false;
  const uint32_t votes =
      (PredicateBits(warp, op.a) ^ (op.is_signed ? kAllLanes : 0)) & mask;
  const VoteMode mode = static_cast<VoteMode>(op.variant);
  if (mode == VoteMode::kBallot) {
    uint32_t result[kWarpLanes];
    for (uint32_t& lane : result) lane = votes;
    Commit(warp, op.d, result, mask);
  } else {
    const bool is_true = mode == VoteMode::kAll   ? votes == mask
                         : mode == VoteMode::kAny ? votes != 0
                                                  : votes == 0 || votes == mask;
    CommitPredicate(warp, op.d, is_true ? kAllLanes : 0, mask);
  }
  return SyncWarp(warp, mask);
}

// "activemask".
bool RunActiveMask(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint32_t result[kWarpLanes];
  for (uint32_t& lane : result) lane = mask;
  Commit(warp, op.d, result, mask);
  return true;
}

// "redux.sync".
bool RunReduce(WarpState& warp, const MicroOp& op, uint32_t mask) {
  if (!CheckMembers(warp, op.b, mask)) return false;
  const uint32_t* a = Lanes<uint32_t>(warp, op.a);
  const BinaryOp kind = static_cast<BinaryOp>(op.variant);
  // Signed numbers are ordered as unsigned ones with the sign bit flipped.
  const uint32_t flip =
      op.is_signed && (kind == BinaryOp::kMin || kind == BinaryOp::kMax)
          ? 0x80000000u
          : 0;
  uint32_t total = a[__builtin_ctz(mask)] ^ flip;
  for (uint32_t m = mask & (mask - 1); m != 0; m &= m - 1) {
    const uint32_t value = a[__builtin_ctz(m)] ^ flip;
    switch (kind) {
      case BinaryOp::kAdd:
        total += value;
        break;
      case BinaryOp::kMin:
        total = std::min(total, value);
        break;
      case BinaryOp::kMax:
        total = std::max(total, value);
        break;
      case BinaryOp::kAnd:
        total &= value;
        break;
      case BinaryOp::kOr:
        total |= value;
        break;
      default:
        total ^= value;
        break;
    }
  }
  uint32_t result[kWarpLanes];
  for (uint32_t& lane : result) lane = total ^ flip;
  Commit(warp, op.d, result, mask);
  return SyncWarp(warp, mask);
}

bool RunWarpSync(WarpState& warp, const MicroOp& op, uint32_t mask) {
  return CheckMembers(warp, op.b, mask) && SyncWarp(warp, mask);
}

std::optional<SpecialRegister> FindSpecialRegister(absl::string_view name) {
  using enum SpecialRegister;
  constexpr std::pair<absl::string_view, SpecialRegister> kNames[] = {
      {"%tid.x", kTidX},
      {"%tid.y", kTidY},
      {"%tid.z", kTidZ},
      {"%ntid.x", kNtidX},
      {"%ntid.y", kNtidY},
      {"%ntid.z", kNtidZ},
      {"%ctaid.x", kCtaidX},
      {"%ctaid.y", kCtaidY},
      {"%ctaid.z", kCtaidZ},
      {"%nctaid.x", kNctaidX},
      {"%nctaid.y", kNctaidY},
      {"%nctaid.z", kNctaidZ},
      {"%laneid", kLaneId},
      {"%warpid", kWarpId},
      {"%nwarpid", kNwarpId},
      {"%lanemask_eq", kLaneMaskEq},
      {"%lanemask_lt", kLaneMaskLt},
      {"%lanemask_le", kLaneMaskLe},
      {"%lanemask_gt", kLaneMaskGt},
      {"%lanemask_ge", kLaneMaskGe}};
  for (const auto& [text, special] : kNames) {
    if (text == name) return special;
  }
  return std::nullopt;
}

// PTX ISA, "Special Registers".
bool RunSpecial(WarpState& warp, const MicroOp& op, uint32_t mask) {
  using enum SpecialRegister;
  const BlockState& block = *warp.block;
  const Dim3& size = block.launch->config->block;
  const Dim3& grid = block.launch->config->grid;
  uint32_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint32_t bit = uint32_t{1} << i;
    uint32_t value = 0;
    switch (static_cast<SpecialRegister>(op.variant)) {
      case kTidX:
        value = warp.tid[0][i];
        break;
      case kTidY:
        value = warp.tid[1][i];
        break;
      case kTidZ:
        value = warp.tid[2][i];
        break;
      case kNtidX:
        value = size.x;
        break;
      case kNtidY:
        value = size.y;
        break;
      case kNtidZ:
        value = size.z;
        break;
      case kCtaidX:
        value = block.index.x;
        break;
      case kCtaidY:
        value = block.index.y;
        break;
      case kCtaidZ:
        value = block.index.z;
        break;
      case kNctaidX:
        value = grid.x;
        break;
      case kNctaidY:
        value = grid.y;
        break;
      case kNctaidZ:
        value = grid.z;
        break;
      case kLaneId:
        value = static_cast<uint32_t>(i);
        break;
      case kWarpId:
        value = static_cast<uint32_t>(warp.number);
        break;
      case kNwarpId:
        value = static_cast<uint32_t>((block.num_threads + 31) / 32);
        break;
      case kLaneMaskEq:
        value = bit;
        break;
      case kLaneMaskLt:
        value = bit - 1;
        break;
      case kLaneMaskLe:
        value = bit | (bit - 1);
        break;
      case kLaneMaskGt:
        value = ~(bit | (bit - 1));
        break;
      case kLaneMaskGe:
        value = ~(bit - 1);
        break;
    }
    result[i] = value;
  }
  if (op.register_bytes == 2) {
    uint16_t narrow[kWarpLanes];
    for (int i = 0; i < kWarpLanes; ++i) {
      narrow[i] = static_cast<uint16_t>(result[i]);
    }
    Commit(warp, op.d, narrow, mask);
  } else {
    Commit(warp, op.d, result, mask);
  }
  return true;
}

}  // namespace datasetd::emulated_gpu
