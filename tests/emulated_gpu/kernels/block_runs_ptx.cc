#include "tests/emulated_gpu/kernels/block_runs_ptx.h"

#include <cstdint>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::testing {
namespace {

using emulated_gpu::LaunchResult;

const emulated_gpu::Module& TestModule() {
  const PtxLaunches& launches = TestPtxLaunches();
  return launches.module != nullptr ? *launches.module
                                    : emulated_gpu::AugmentModule();
}

// Says in the end what was run.
class Totals : public ::testing::Environment {
 public:
  void Add(const LaunchResult& result) {
    ++num_launches_;
    num_instructions_ += result.counters.thread_instructions;
  }
  void TearDown() override {
    std::cout << num_launches_ << " launches, " << num_instructions_
              << " thread instructions of PTX\n";
  }

 private:
  uint64_t num_launches_ = 0;
  uint64_t num_instructions_ = 0;
};

Totals* const totals = static_cast<Totals*>(
    ::testing::AddGlobalTestEnvironment(new Totals));  // owns it

void Check(const absl::StatusOr<std::optional<LaunchResult>>& result) {
  ASSERT_TRUE(result.ok()) << result.status().message();
  if (!result->has_value()) return;
  totals->Add(**result);
  if (TestPtxLaunches().on_result) {
    TestPtxLaunches().on_result(**result);
    return;
  }
  ASSERT_FALSE((*result)->fault.has_value()) << (*result)->fault->ToString();
}

}  // namespace

PtxLaunches& TestPtxLaunches() {
  static PtxLaunches& launches = *new PtxLaunches;
  return launches;
}

bool RunAugmentBlocks(const AugmentProgram& program,
                      const std::vector<BatchTask>& batches,
                      const std::vector<MemoryRange>& memory,
                      StoreCounts* counts) {
  Check(emulated_gpu::LaunchAugmentKernel(
      TestModule(), TestPtxLaunches().config, program, batches, memory));
  return false;
}

void RunChainBlocks(const AugmentProgram& program, int field_index,
                    const BatchTask& batch,
                    const std::vector<MemoryRange>& memory, int num_ranks,
                    int num_strips) {
  const emulated_gpu::LaunchConfig& config = TestPtxLaunches().config;
  // Without steps it is the other kernel's.
  if (program.fields[field_index].num_steps > 0) {
    Check(emulated_gpu::LaunchChainKernel(
        TestModule(), config, program, {batch}, memory, num_ranks, num_strips));
  } else {
    Check(emulated_gpu::LaunchAugmentKernel(TestModule(), config, program,
                                            {batch}, memory));
  }
}

std::vector<int> ChainBlockSizes() { return {64, kMaxChainThreads}; }

}  // namespace datasetd::testing
