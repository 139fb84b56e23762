#include "cuda/kernels/chain/chain_scratch.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::unique_ptr<AugmentProgram> ProgramWith(const ChainScratch& scratch) {
  auto program = std::make_unique<AugmentProgram>();
  program->num_fields = 1;
  program->fields[0].num_steps = 1;
  program->fields[0].scratch = scratch;
  return program;
}

TEST(ChainScratchTest, PartsStandOneAfterAnother) {
  const ChainScratch scratch = {.image_elements = {100, 50},
                                .row_elements = 200,
                                .line_elements = 10,
                                .tap_elements = 7,
                                .map_elements = 20,
                                .partner_elements = 300};
  const auto program = ProgramWith(scratch);
  const ScratchPlan plan = PlanScratch(*program, 3);
  EXPECT_EQ(plan.num_teams, 3);
  EXPECT_EQ(plan.size_bytes, 256 + 3 * plan.team_bytes);
  plan.Give(nullptr, program.get());
  const ChainMemory memory = TeamMemory(*program, program->fields[0], 2);
  const auto end = reinterpret_cast<uintptr_t>(memory.partner) +
                   static_cast<uintptr_t>(ScratchPartBytes(300));
  EXPECT_EQ(end, static_cast<uintptr_t>(plan.size_bytes));
}

// Sums once wrapped around: a feed took a few MiB and wrote to terabytes.
TEST(ChainScratchTest, SizesAreHeldAtTheLargest) {
  for (const int64_t elements :
       {int64_t{1} << 60, int64_t{1} << 61, kMax / 4, kMax / 2, kMax}) {
    for (int part = 0; part < 7; ++part) {
      ChainScratch scratch = {};
      int64_t* const parts[] = {
          &scratch.image_elements[0], &scratch.image_elements[1],
          &scratch.row_elements,      &scratch.line_elements,
          &scratch.tap_elements,      &scratch.map_elements,
          &scratch.partner_elements};
      *parts[part] = elements;
      const ScratchPlan plan = PlanScratch(*ProgramWith(scratch), 64);
      EXPECT_GE(plan.size_bytes, int64_t{1} << 61) << part;
      EXPECT_GE(plan.team_bytes, int64_t{1} << 61) << part;
      EXPECT_EQ(plan.num_teams, 1);
    }
  }
}

}  // namespace
}  // namespace datasetd
