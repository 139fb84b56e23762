#include "cuda/kernels/host/chain_host.h"

#include <atomic>
#include <cstdint>
#include <thread>

#include "cuda/kernels/chain/chain_executor.h"
#include "cuda/kernels/chain/chain_rows.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/host/host_team.h"
#include "cuda/kernels/host/host_vector_plain.h"

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
  const ChainMemory memory = TeamMemory(program, field, lease.team());
  if (HasChainAvx512()) {
    return RunChainAvx512(program, field, batch, memory);
  }
  if (HasChainAvx2()) {
    return RunChainAvx2(program, field, batch, memory);
  }
  return RunChainPlain(program, field, batch, memory);
}

int32_t RunChainPlain(const AugmentProgram& program, const FieldProgram& field,
                      const BatchTask& batch, const ChainMemory& memory) {
  ChainState state;
  ChainExecutor<HostTeam<HostIsa::kPlain>> executor({}, program, field, memory,
                                                    &state);
  return RunRows(executor, batch);
}

}  // namespace datasetd
