#include "cuda/kernels/host/chain_host.h"

#include <atomic>
#include <cstdint>
#include <thread>

#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/program/host_checkpoint.h"

// Compiles this file once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cuda/kernels/host/chain_host.cc"
#include "hwy/foreach_target.h"
// For each of them:
#include "hwy/highway.h"
// After Highway:
#include "cuda/kernels/chain/chain_executor.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/sequence_executor.h"
#include "cuda/kernels/host/host_team.h"

HWY_BEFORE_NAMESPACE();
namespace datasetd::HWY_NAMESPACE {

template <typename Executor>
int32_t RunOwnRows(const AugmentProgram& program, const BatchTask& batch,
                   Executor& executor) {
  return RunRows(batch, [&](int32_t row) DATASETD_TEAM_ATTR {
    return !IsOwnRow(program.mixture, batch, row) || executor.Run(batch, row);
  });
}

int32_t RunChain(const AugmentProgram& program, const FieldProgram& field,
                 const BatchTask& batch, const ChainMemory& memory) {
  ChainState state;
  if (!field.is_image) {
    SequenceExecutor<HostTeam> executor({}, program, field, memory, &state);
    return RunOwnRows(program, batch, executor);
  }
  ChainExecutor<HostTeam> executor({}, program, field, memory, &state);
  return RunOwnRows(program, batch, executor);
}

}  // namespace datasetd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace datasetd {
namespace {

// Holds a team's scratch memory for the lifetime of the object.
class TeamLease {
 public:
  explicit TeamLease(const AugmentProgram& program) : program_(program) {
    while (true) {
      for (team_ = 0; team_ < program.num_teams; ++team_) {
        if (Flag().exchange(1, std::memory_order_acquire) == 0) return;
      }
      std::this_thread::yield();
    }
  }
  ~TeamLease() { Flag().store(0, std::memory_order_release); }
  TeamLease(const TeamLease&) = delete;
  TeamLease& operator=(const TeamLease&) = delete;

  int team() const { return team_; }

 private:
  std::atomic_ref<uint32_t> Flag() const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(
        program_.scratch + team_ * kTeamFlagBytes));
  }

  const AugmentProgram& program_;
  int team_ = 0;
};

}  // namespace

int32_t RunChainHost(const AugmentProgram& program, const FieldProgram& field,
                     const BatchTask& batch) {
  const TeamLease lease(program);
  return RunChainOn(HostTargets().front(), program, field, batch,
                    TeamMemory(program, field, lease.team()));
}

int32_t RunChainOn(HostTarget target, const AugmentProgram& program,
                   const FieldProgram& field, const BatchTask& batch,
                   const ChainMemory& memory) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(RunChain)) kRun[] =
      DATASETD_HOST_TABLE(RunChain);
  return kRun[static_cast<int>(target)](program, field, batch, memory);
}

}  // namespace datasetd

#endif  // HWY_ONCE
