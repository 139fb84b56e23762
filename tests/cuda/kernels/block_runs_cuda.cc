#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/cuda/kernels/cuda_launch.h"

namespace datasetd::testing {
namespace {

// Skips every test where there is no GPU; with DATASETD_REQUIRE_GPU=1 that
// fails.
class RequireGpu : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo& /*test*/) override {
    if (FirstGpu().ok()) return;
    const char* const required = std::getenv("DATASETD_REQUIRE_GPU");
    if (required != nullptr && std::string(required) == "1") {
      FAIL() << "DATASETD_REQUIRE_GPU is 1, but: " << FirstGpu().status();
    }
    GTEST_SKIP() << FirstGpu().status();
  }
};

[[maybe_unused]] const bool is_listening = [] {
  // Owns it.
  ::testing::UnitTest::GetInstance()->listeners().Append(new RequireGpu);
  return true;
}();

// Blocks of a chain have as many threads as its teams' memory asks for.
int64_t TeamBytes(int num_threads) {
  int64_t team_bytes = 0;
  while (ChainThreads(team_bytes) < num_threads) team_bytes += 64 << 10;
  return team_bytes;
}

}  // namespace

bool RunAugmentBlocks(const AugmentProgram& program,
                      const std::vector<BatchTask>& batches,
                      const std::vector<MemoryRange>& memory,
                      StoreCounts* counts) {
  EXPECT_EQ(LaunchOnGpu(**FirstGpu(), program, batches, memory),
            absl::OkStatus());
  return false;
}

void RunChainBlocks(const AugmentProgram& program, int field_index,
                    const BatchTask& batch,
                    const std::vector<MemoryRange>& memory, int num_ranks,
                    int /*num_strips*/) {
  EXPECT_EQ(
      LaunchOnGpu(**FirstGpu(), program, {batch}, memory, TeamBytes(num_ranks)),
      absl::OkStatus());
}

std::vector<int> ChainBlockSizes() { return {64, kMaxChainThreads}; }

}  // namespace datasetd::testing
