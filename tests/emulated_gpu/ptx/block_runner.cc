#include "tests/emulated_gpu/ptx/block_runner.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/emulated_gpu/ptx/exchange.h"
#include "tests/emulated_gpu/ptx/memory.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/module_code.h"

namespace datasetd::emulated_gpu {
namespace {

constexpr int64_t kBudgetStep = 1 << 14;
constexpr size_t kMaxDepth = 64;

int CountLanes(uint32_t mask) {
  return mask == kAllLanes ? kWarpLanes : __builtin_popcount(mask);
}

}  // namespace

BlockRunner::BlockRunner(LaunchState* launch, std::atomic<int64_t>* budget)
    : budget_(budget) {
  block_.launch = launch;
  block_.num_threads = static_cast<int>(launch->config->block.Count());
  const size_t shared_bytes =
      launch->static_shared_bytes + launch->config->dynamic_shared_bytes;
  block_.shared.resize(shared_bytes);
  block_.shared_shadow =
      std::vector<ShadowPage>(shared_bytes / ShadowPage::kBytes + 1);
  for (const FunctionCode& function : launch->module->functions) {
    block_.op_counts.emplace_back(function.ops.size());
    block_.op_accesses.emplace_back(
        launch->config->count_accesses ? function.ops.size() : 0);
  }
  warps_.resize((block_.num_threads + kWarpLanes - 1) / kWarpLanes);
}

void BlockRunner::StartBlock(uint64_t number) {
  const Dim3& grid = block_.launch->config->grid;
  block_.number = static_cast<uint32_t>(number);
  block_.index = {static_cast<uint32_t>(number % grid.x),
                  static_cast<uint32_t>(number / grid.x % grid.y),
                  static_cast<uint32_t>(number / grid.x / grid.y)};
  block_.barrier_count = 0;
  block_.translations.Clear();
  // Reads of memory that was not written show in results, too.
  std::fill(block_.shared.begin(), block_.shared.end(), 0xEE);
  for (ShadowPage& page : block_.shared_shadow) page.Clear();
  ++num_blocks_;
}

bool BlockRunner::StartWarp(int index) {
  WarpState& warp = warps_[index];
  const LaunchState& launch = *block_.launch;
  warp.block = &block_;
  warp.number = index;
  warp.function = launch.module->by_name.at(launch.kernel->name);
  warp.code = launch.kernel;
  const int first = index * kWarpLanes;
  const int count = std::min(block_.num_threads - first, kWarpLanes);
  warp.live = count == kWarpLanes ? kAllLanes : (uint32_t{1} << count) - 1;
  const Dim3& size = launch.config->block;
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint32_t thread = static_cast<uint32_t>(first + i);
    warp.tid[0][i] = static_cast<uint16_t>(thread % size.x);
    warp.tid[1][i] = static_cast<uint16_t>(thread / size.x % size.y);
    warp.tid[2][i] = static_cast<uint16_t>(thread / size.x / size.y);
  }
  warp.stack.assign(1, {0, -1, warp.live});
  warp.frames.assign(1, {warp.code, warp.function, 0, warp.live, 0, 0});
  warp.local_base = 0;
  warp.local_top = 0;
  warp.carry = 0;
  warp.warp_sync_count = 0;
  warp.barrier = -1;
  warp.has_fault = false;
  EnterFrame(warp);
  ++num_warps_;
  return BeginSegment(warp);
}

// Registers and local memory of the frame at the top.
void BlockRunner::EnterFrame(WarpState& warp) {
  const FunctionCode& code = *warp.code;
  const size_t depth = warp.frames.size() - 1;
  if (warp.frame_memory.size() <= depth) {
    warp.frame_memory.resize(depth + 1);
    warp.frame_capacity.resize(depth + 1);
  }
  if (warp.frame_capacity[depth] < code.frame_bytes) {
    // Aligned to 16 by operator new.
    warp.frame_memory[depth] = std::make_unique<uint8_t[]>(code.frame_bytes);
    warp.frame_capacity[depth] = code.frame_bytes;
  }
  warp.bank[0] = warp.frame_memory[depth].get();
  warp.bank[1] = const_cast<uint8_t*>(code.constants.data());
  std::memset(warp.bank[0] + code.tracked_offset, 0, code.tracked_bytes);
  warp.local_base = warp.local_top;
  warp.frames.back().local_base = warp.local_base;
  warp.local_top += code.local_bytes;
  if (warp.local_top > warp.local_stride) {
    // Lanes move apart: each has its bytes in one stretch.
    const int64_t stride = std::max<int64_t>(2 * warp.local_top, 256);
    std::vector<uint8_t> local(stride * kWarpLanes);
    std::vector<uint8_t> written(stride * kWarpLanes);
    for (int i = 0; i < kWarpLanes && warp.local_base > 0; ++i) {
      std::memcpy(&local[i * stride], &warp.local[i * warp.local_stride],
                  warp.local_base);
      std::memcpy(&written[i * stride],
                  &warp.local_written[i * warp.local_stride], warp.local_base);
    }
    warp.local = std::move(local);
    warp.local_written = std::move(written);
    warp.local_stride = stride;
  }
  if (code.local_bytes == 0) return;
  // Reads of memory that was not written show in results, as NaNs.
  const bool checks = block_.launch->config->check_local;
  for (int i = 0; i < kWarpLanes; ++i) {
    const int64_t at = i * warp.local_stride + warp.local_base;
    std::memset(&warp.local[at], 0xFF, code.local_bytes);
    if (checks) std::memset(&warp.local_written[at], 0, code.local_bytes);
  }
}

bool BlockRunner::Call(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const FunctionCode& callee = block_.launch->module->functions[op.target];
  const CallPlan& plan = warp.code->calls[op.side];
  if (warp.frames.size() >= kMaxDepth ||
      warp.local_top + callee.local_bytes > kMaxLocalBytes) {
    return warp.Fail(FaultKind::kStackOverflow,
                     absl::StrCat("call of ", callee.name),
                     __builtin_ctz(mask));
  }
  const FunctionCode& caller = *warp.code;
  uint8_t* from = warp.bank[0];
  warp.frames.push_back(
      {&callee, op.target, warp.op_index + 1, mask, warp.stack.size(), 0});
  warp.code = &callee;
  warp.function = op.target;
  EnterFrame(warp);
  const size_t first = callee.returns.size();
  for (size_t k = 0; k < plan.arguments.size(); ++k) {
    const ParameterArea& area = caller.areas[plan.arguments[k]];
    std::memcpy(warp.bank[0] + callee.areas[first + k].frame_offset,
                from + area.frame_offset, area.lane_stride_bytes * kWarpLanes);
  }
  warp.stack.push_back({0, -1, mask});
  return true;
}

void BlockRunner::PopFrames(WarpState& warp) {
  while (warp.frames.size() > 1 &&
         warp.stack.size() == warp.frames.back().stack_base) {
    const CallFrame frame = warp.frames.back();
    const FunctionCode& callee = *frame.code;
    warp.frames.pop_back();
    const CallFrame& back = warp.frames.back();
    warp.code = back.code;
    warp.function = back.function;
    warp.local_top = warp.local_base;
    warp.local_base = back.local_base;
    uint8_t* from = warp.bank[0];
    warp.bank[0] = warp.frame_memory[warp.frames.size() - 1].get();
    warp.bank[1] = const_cast<uint8_t*>(warp.code->constants.data());
    const MicroOp& call = warp.code->ops[frame.return_op - 1];
    const CallPlan& plan = warp.code->calls[call.side];
    for (size_t k = 0; k < plan.results.size(); ++k) {
      const ParameterArea& to = warp.code->areas[plan.results[k]];
      const ParameterArea& area = callee.areas[k];
      for (uint32_t m = frame.mask; m != 0; m &= m - 1) {
        const int lane = __builtin_ctz(m);
        std::memcpy(
            warp.bank[0] + to.frame_offset + lane * to.lane_stride_bytes,
            from + area.frame_offset + lane * area.lane_stride_bytes,
            to.lane_stride_bytes);
      }
    }
    // The caller's entry waits behind the call; its lanes may all have exited.
    while (warp.stack.size() > warp.frames.back().stack_base &&
           warp.stack.back().mask == 0) {
      warp.stack.pop_back();
    }
  }
}

bool BlockRunner::CheckTracked(WarpState& warp, const MicroOp& op,
                               uint32_t active, uint32_t mask) {
  const TrackedOperands& tracked = warp.code->tracked[op.tracked];
  uint32_t written = kAllLanes;
  for (const TrackedRead& read : tracked.reads) {
    uint32_t lanes;
    std::memcpy(&lanes, warp.bank[0] + read.offset, sizeof(lanes));
    // A guard is read by all lanes, operands by those that it lets through.
    const uint32_t readers = read.is_guard ? active : mask;
    if (!read.is_guard) written &= lanes;
    if ((read.is_guard || !tracked.is_copy) && (readers & ~lanes) != 0 &&
        block_.launch->config->check_uninitialised) {
      return warp.Fail(
          FaultKind::kUninitialised,
          absl::StrCat("register ", warp.code->register_names[read.reg],
                       " is read before it is written"),
          __builtin_ctz(readers & ~lanes));
    }
  }
  for (const uint32_t offset : tracked.writes) {
    uint32_t lanes;
    std::memcpy(&lanes, warp.bank[0] + offset, sizeof(lanes));
    lanes = tracked.is_copy ? (lanes & ~mask) | (written & mask) : lanes | mask;
    std::memcpy(warp.bank[0] + offset, &lanes, sizeof(lanes));
  }
  return true;
}

// The lanes of a warp go apart at a branch and meet at its immediate
// post-dominator.
void BlockRunner::Branch(WarpState& warp, const MicroOp& op, uint32_t taken) {
  StackEntry& top = warp.stack.back();
  const uint32_t others = top.mask & ~taken;
  if (taken == 0) {
    top.op = warp.op_index + 1;
    return;
  }
  if (others == 0) {
    top.op = op.target;
    return;
  }
  ++block_.divergent_branches;
  const int next = warp.op_index + 1;
  if (op.reconverge < 0) {
    top = {next, -1, others};
    warp.stack.push_back({op.target, -1, taken});
    return;
  }
  top.op = op.reconverge;
  if (next != op.reconverge) {
    warp.stack.push_back({next, op.reconverge, others});
  }
  if (op.target != op.reconverge) {
    warp.stack.push_back({op.target, op.reconverge, taken});
  }
}

bool BlockRunner::BranchTable(WarpState& warp, const MicroOp& op,
                              uint32_t mask) {
  const std::vector<int>& targets = warp.code->tables[op.side];
  const uint32_t* index = Lanes<uint32_t>(warp, op.a);
  std::vector<uint32_t> lanes(targets.size());
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    if (index[lane] >= targets.size()) {
      return warp.Fail(FaultKind::kTrap,
                       absl::StrCat("brx.idx ", index[lane], " of ",
                                    targets.size(), " targets"),
                       lane);
    }
    lanes[index[lane]] |= uint32_t{1} << lane;
  }
  const StackEntry entry = warp.stack.back();
  const uint32_t others = entry.mask & ~mask;
  if (op.reconverge < 0) {
    warp.stack.pop_back();
  } else {
    warp.stack.back().op = op.reconverge;
  }
  if (others != 0) {
    warp.stack.push_back({warp.op_index + 1, op.reconverge, others});
  }
  int num_ways = others != 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (lanes[i] == 0) continue;
    ++num_ways;
    if (targets[i] != op.reconverge) {
      warp.stack.push_back({targets[i], op.reconverge, lanes[i]});
    }
  }
  block_.divergent_branches += num_ways > 1;
  return true;
}

bool BlockRunner::TakeBudget(WarpState& warp) {
  const int64_t left = budget_->fetch_sub(kBudgetStep);
  if (left <= 0) {
    return warp.Fail(FaultKind::kInstructionBudget,
                     absl::StrCat("the launch ran for more than ",
                                  block_.launch->config->max_warp_instructions,
                                  " warp instructions"),
                     __builtin_ctz(warp.stack.back().mask));
  }
  own_budget_ += std::min(left, kBudgetStep);
  return true;
}

BlockRunner::Stop BlockRunner::RunWarp(WarpState& warp) {
  while (!warp.stack.empty()) {
    StackEntry& top = warp.stack.back();
    if (top.op == top.reconverge || top.mask == 0) {
      warp.stack.pop_back();
      PopFrames(warp);
      continue;
    }
    // Straight on until control moves.
    const uint32_t active = top.mask;
    const int active_lanes = CountLanes(active);
    const MicroOp* const ops = warp.code->ops.data();
    OpCount* const counts = block_.op_counts[warp.function].data();
    const int reconverge = top.reconverge;
    int at = top.op;
    const MicroOp* op = nullptr;
    uint32_t mask = 0;
    for (;; ++at) {
      if (at == reconverge) break;
      op = &ops[at];
      mask = active;
      ++counts[at].warps;
      if (op->predicate != kNoOperand) {
        const uint32_t guard = PredicateBits(warp, op->predicate);
        mask &= op->is_predicate_negated ? ~guard : guard;
        counts[at].lanes += CountLanes(mask);
      } else {
        counts[at].lanes += active_lanes;
      }
      warp.op_index = at;
      if (--own_budget_ < 0 && !TakeBudget(warp)) return Stop::kFault;
      if (op->tracked >= 0) {
        if (!CheckTracked(warp, *op, active, mask)) return Stop::kFault;
      }
      if (op->kind != OpKind::kCompute) break;
      if (mask != 0 && !op->run(warp, *op, mask)) return Stop::kFault;
    }
    top.op = at;
    if (at == reconverge) continue;

    switch (op->kind) {
      case OpKind::kCompute:
        break;
      case OpKind::kBranch:
        Branch(warp, *op, mask);
        break;
      case OpKind::kBranchTable:
        if (mask == 0) {
          top.op = at + 1;
        } else if (!BranchTable(warp, *op, mask)) {
          return Stop::kFault;
        }
        break;
      case OpKind::kCall:
        top.op = at + 1;
        if (mask != 0 && !Call(warp, *op, mask)) return Stop::kFault;
        break;
      case OpKind::kTrap:
        top.op = at + 1;
        if (mask != 0) {
          warp.Fail(FaultKind::kTrap, "trap", __builtin_ctz(mask));
          return Stop::kFault;
        }
        break;
      case OpKind::kBarrier: {
        top.op = at + 1;
        if (mask == 0 || warp.code->lines[at] ==
                             block_.launch->config->skipped_barrier_ptx_line) {
          break;
        }
        if (mask != warp.live) {
          warp.Fail(FaultKind::kDivergentBarrier,
                    absl::StrCat("barrier ", op->immediate, ": ",
                                 CountLanes(warp.live & ~mask), " of ",
                                 CountLanes(warp.live),
                                 " threads of the warp are elsewhere"),
                    __builtin_ctz(mask));
          return Stop::kFault;
        }
        warp.barrier = static_cast<int>(op->immediate);
        warp.barrier_line = warp.code->lines[at];
        return Stop::kBarrier;
      }
      case OpKind::kReturn:
      case OpKind::kExit:
      case OpKind::kEnd: {
        top.op = at + 1;
        const bool leaves_kernel =
            op->kind == OpKind::kExit || warp.frames.size() == 1;
        const size_t base =
            op->kind == OpKind::kExit ? 0 : warp.frames.back().stack_base;
        for (size_t i = base; i < warp.stack.size(); ++i) {
          warp.stack[i].mask &= ~mask;
        }
        if (leaves_kernel) warp.live &= ~mask;
        if (op->kind == OpKind::kExit) {
          for (CallFrame& frame : warp.frames) frame.mask &= ~mask;
        }
        while (warp.stack.size() > warp.frames.back().stack_base &&
               warp.stack.back().mask == 0) {
          warp.stack.pop_back();
        }
        PopFrames(warp);
        break;
      }
    }
  }
  return Stop::kDone;
}

// All warps have stopped. CUDA C++ Programming Guide, "Synchronization
// Functions": all threads of the block must come to the same barrier.
std::optional<Fault> BlockRunner::CheckBarrier() {
  WarpState* waiting = nullptr;
  int num_waiting = 0;
  int num_live = 0;
  for (WarpState& warp : warps_) {
    num_live += CountLanes(warp.live);
    if (warp.barrier < 0) continue;
    num_waiting += CountLanes(warp.live);
    if (waiting == nullptr) waiting = &warp;
    if (warp.barrier_line != waiting->barrier_line) {
      warp.Fail(FaultKind::kDivergentBarrier,
                absl::StrCat("barrier ", warp.barrier,
                             ": other threads of the block are at the one of "
                             "PTX line ",
                             waiting->barrier_line),
                __builtin_ctz(warp.live));
      return warp.fault;
    }
  }
  if (num_waiting != block_.num_threads) {
    waiting->Fail(
        FaultKind::kDivergentBarrier,
        absl::StrCat("barrier ", waiting->barrier, ": ",
                     block_.num_threads - num_live, " of ", block_.num_threads,
                     " threads of the block have exited"),
        __builtin_ctz(waiting->live));
    return waiting->fault;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Fault>> BlockRunner::Run(uint64_t number) {
  const auto too_long = [this] {
    return absl::ResourceExhaustedError(absl::StrCat(
        "kernel ", block_.launch->kernel->name,
        ": more barriers and blocks than the race check can tell apart; set "
        "check_races to false"));
  };
  StartBlock(number);
  const bool counts = block_.launch->config->count_accesses;
  const uint64_t before = counts ? NumInstructions() : 0;
  for (size_t i = 0; i < warps_.size(); ++i) {
    if (!StartWarp(static_cast<int>(i))) return too_long();
  }
  for (;;) {
    bool is_waiting = false;
    for (WarpState& warp : warps_) {
      switch (RunWarp(warp)) {
        case Stop::kDone:
          break;
        case Stop::kBarrier:
          is_waiting = true;
          break;
        case Stop::kFault:
          if (warp.has_too_many_segments) return too_long();
          return warp.fault;
      }
    }
    if (!is_waiting) {
      if (counts) {
        longest_block_ = std::max(longest_block_, NumInstructions() - before);
      }
      return std::nullopt;
    }
    if (std::optional<Fault> fault = CheckBarrier(); fault.has_value()) {
      return fault;
    }
    ++num_barriers_;
    ++block_.barrier_count;
    for (WarpState& warp : warps_) {
      warp.barrier = -1;
      if (!BeginSegment(warp)) return too_long();
    }
  }
}

uint64_t BlockRunner::NumInstructions() const {
  uint64_t sum = 0;
  for (const auto& counts : block_.op_counts) {
    for (const OpCount& count : counts) sum += count.warps;
  }
  return sum;
}

void BlockRunner::AddCounts(Counters* counters) const {
  counters->longest_block = std::max(counters->longest_block, longest_block_);
  counters->blocks += num_blocks_;
  counters->warps += num_warps_;
  counters->barriers += num_barriers_;
  counters->divergent_branches += block_.divergent_branches;
  const ModuleCode& module = *block_.launch->module;
  const bool by_line = block_.launch->config->count_lines;
  for (size_t f = 0; f < module.functions.size(); ++f) {
    const FunctionCode& code = module.functions[f];
    for (size_t i = 0; i + 1 < code.ops.size(); ++i) {
      const OpCount& count = block_.op_counts[f][i];
      if (count.warps == 0) continue;
      counters->warp_instructions += count.warps;
      counters->thread_instructions += count.lanes;
      counters->by_class[static_cast<int>(code.ops[i].op_class)] += count.warps;
      if (code.ops[i].kind == OpKind::kBarrier) {
        counters->barriers_by_ptx_line[code.lines[i]] += count.warps;
      }
      if (by_line) counters->by_ptx_line[code.lines[i]] += count.warps;
      if (!by_line || code.locations[i] < 0) continue;
      const CodeLocation& at = module.locations[code.locations[i]];
      Counters::Line& line = counters->by_line[{at.file, at.line}];
      line.warp_instructions += count.warps;
      line.thread_instructions += count.lanes;
      if (!block_.op_accesses[f].empty()) {
        line.sectors += block_.op_accesses[f][i].sectors;
      }
    }
  }
  counters->global_loads.Add(block_.accesses[0]);
  counters->global_stores.Add(block_.accesses[1]);
  counters->shared_loads.Add(block_.accesses[2]);
  counters->shared_stores.Add(block_.accesses[3]);
  counters->local_loads.Add(block_.accesses[4]);
  counters->local_stores.Add(block_.accesses[5]);
  counters->atomics.Add(block_.accesses[6]);
}

}  // namespace datasetd::emulated_gpu
