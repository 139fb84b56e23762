// Runs blocks of a launch, one after another, on one host thread.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_BLOCK_RUNNER_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_BLOCK_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/emulated_gpu/ptx/counters.h"
#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {

class BlockRunner {
 public:
  // `launch` and `budget`, the warp instructions left to the launch, must
  // outlive this.
  BlockRunner(LaunchState* launch, std::atomic<int64_t>* budget);

  // Block `number`, x first. The fault that ended it, if any.
  // RESOURCE_EXHAUSTED: too many segments.
  absl::StatusOr<std::optional<Fault>> Run(uint64_t number);

  // Adds what all blocks did.
  void AddCounts(Counters* counters) const;

 private:
  enum class Stop { kDone, kBarrier, kFault };

  void StartBlock(uint64_t number);
  bool StartWarp(int index);
  Stop RunWarp(WarpState& warp);
  bool CheckTracked(WarpState& warp, const MicroOp& op, uint32_t active,
                    uint32_t mask);
  bool Call(WarpState& warp, const MicroOp& op, uint32_t mask);
  void EnterFrame(WarpState& warp);
  // Ends the frame if all its lanes are back.
  void PopFrames(WarpState& warp);
  void Branch(WarpState& warp, const MicroOp& op, uint32_t taken);
  bool BranchTable(WarpState& warp, const MicroOp& op, uint32_t mask);
  std::optional<Fault> CheckBarrier();
  bool TakeBudget(WarpState& warp);
  uint64_t NumInstructions() const;  // of all warps so far

  BlockState block_;
  std::vector<WarpState> warps_;
  std::atomic<int64_t>* budget_;
  int64_t own_budget_ = 0;  // taken from budget_ and not used yet
  uint64_t num_blocks_ = 0;
  uint64_t num_warps_ = 0;
  uint64_t num_barriers_ = 0;
  uint64_t longest_block_ = 0;  // if accesses are counted
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_BLOCK_RUNNER_H_
