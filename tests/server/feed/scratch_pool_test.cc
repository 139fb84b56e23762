#include "server/feed/scratch_pool.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/feed_fixture.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMib = 1 << 20;
constexpr uint64_t kGib = uint64_t{1} << 30;

TEST(ScratchPoolSizesTest, EveryBlockOfThreadsHasMemoryWhereTheBudgetAllowsIt) {
  EXPECT_EQ(ScratchPool::SizesFor(kMib, 264, 72 * kGib).least, 256 * kMib);
  EXPECT_EQ(ScratchPool::SizesFor(kMib, 264, 72 * kGib).best, 512 * kMib);
  // As small as all teams need.
  EXPECT_EQ(ScratchPool::SizesFor(1000, 264, 72 * kGib).least, 2 * kMib);
  EXPECT_EQ(ScratchPool::SizesFor(1000, 264, 72 * kGib).best, 2 * kMib);
  // A quarter of the budget.
  EXPECT_EQ(ScratchPool::SizesFor(25 * kMib, 264, 72 * kGib).best, 8192 * kMib);
  EXPECT_EQ(ScratchPool::SizesFor(25 * kMib, 264, 20 * kGib).best, 4096 * kMib);
  EXPECT_EQ(ScratchPool::SizesFor(25 * kMib, 264, kGib / 2).best, 256 * kMib);
  // One team is the least.
  EXPECT_EQ(ScratchPool::SizesFor(600 * kMib, 264, kGib).least, 1024 * kMib);
  EXPECT_EQ(ScratchPool::SizesFor(INT64_MAX, 264, kGib).least, INT64_MAX);
}

// 132 multiprocessors with two blocks of threads each, and 80 GiB.
TEST(ScratchPoolSizesTest, LargeImagesUseTheWholeDevice) {
  for (const int64_t extent : {224, 512, 1024}) {
    const FieldSpec field = {
        .name = "image", .shape = {extent, extent, 3}, .is_image = true};
    const auto program = CompileField(
        field, 0,
        {Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"),
         Op("rotate { angle: 30.0 }"), Op("rotate { angle: 9.0 }")},
        Layout::kNchw);
    ASSERT_THAT(program, IsOk());
    const int64_t team_bytes = TeamScratchBytes(*program);
    EXPECT_GT(team_bytes, extent * extent * 3 * 4);
    const auto sizes = ScratchPool::SizesFor(team_bytes, 264, 72 * kGib);
    EXPECT_GE(ScratchPool::PlanBlock(team_bytes, 264, sizes.best).num_teams,
              264 * 9 / 10)
        << extent << ": " << team_bytes;
  }
}

TEST(ScratchPoolSizesTest, TheTeamsOfABlockFitIntoIt) {
  for (const int64_t team_bytes : {1, 256, 70'000, 7'000'000, 300'000'000}) {
    const auto sizes = ScratchPool::SizesFor(team_bytes, 100, 8 * kGib);
    for (int64_t bytes = sizes.best; bytes >= sizes.least; bytes /= 2) {
      const ScratchPlan plan = ScratchPool::PlanBlock(team_bytes, 100, bytes);
      EXPECT_GE(plan.num_teams, 1);
      EXPECT_LE(AlignScratch(plan.num_teams * kTeamFlagBytes) +
                    plan.num_teams * team_bytes,
                bytes);
    }
  }
}

class ScratchPoolTest : public ::testing::Test {
 protected:
  ScratchPoolTest() {
    auto pool = ScratchPool::Create(&backend_, &budget_, nullptr);
    EXPECT_THAT(pool, IsOk());
    pool_ = *std::move(pool);
  }
  absl::StatusOr<ScratchPool::Lease> Take(int64_t team_bytes) {
    return pool_->Take(team_bytes, 1000, "scratch of feed 7", {});
  }
  uint64_t used_bytes() const {
    return budget_.used_bytes_of_kind(MemoryKind::kScratch);
  }

  FakeBackend backend_{
      {.needs_polling = true, .max_teams = 64, .is_host = false}};
  // The limit is for what is no block.
  MemoryBudget budget_{4 * kGib, {.scratch_bytes = kMib}};
  std::unique_ptr<ScratchPool> pool_;
};

TEST_F(ScratchPoolTest, FeedsThatNeedAsMuchShareABlockThatIsCountedOnce) {
  EXPECT_EQ(pool_->MissingBytes(kMib / 2), 64 * kMib);
  auto first = Take(kMib / 2);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->num_teams(), 64);
  EXPECT_EQ(used_bytes(), 64 * kMib);
  EXPECT_EQ(pool_->MissingBytes(kMib / 2 + 1000), 0);
  auto second = Take(kMib / 2 + 1000);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(used_bytes(), 64 * kMib);
  AugmentProgram one = {};
  AugmentProgram other = {};
  first->Give(&one);
  second->Give(&other);
  EXPECT_EQ(one.scratch, other.scratch);
  EXPECT_NE(one.team_scratch_bytes, other.team_scratch_bytes);
  // Its launches are in one order.
  EXPECT_EQ(first->stream(), second->stream());
  *first = ScratchPool::Lease();
  EXPECT_EQ(used_bytes(), 64 * kMib);
  *second = ScratchPool::Lease();
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(ScratchPoolTest, AFeedThatNeedsLessKeepsNoLargeBlock) {
  auto large = Take(4 * kMib);
  const auto small = Take(1000);
  ASSERT_THAT(small, IsOk());
  EXPECT_EQ(used_bytes(), 514 * kMib);
  *large = ScratchPool::Lease();
  EXPECT_EQ(used_bytes(), 2 * kMib);
}

TEST_F(ScratchPoolTest, WhereMemoryIsShortFewerTeamsRun) {
  auto filler = budget_.Reserve(MemoryKind::kDataset, 0, 4 * kGib - 300 * kMib,
                                "the rest");
  ASSERT_THAT(filler, IsOk());
  auto lease = Take(8 * kMib);
  ASSERT_THAT(lease, IsOk());
  EXPECT_EQ(lease->num_teams(), 31);
  EXPECT_EQ(used_bytes(), 256 * kMib);
  // Another feed shares it, and one that needs a block of its own is refused.
  EXPECT_THAT(Take(8 * kMib), IsOk());
  EXPECT_THAT(Take(kMib),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("scratch of feed 7 needs 128.0 MiB"),
                             HasSubstr("44.0 MiB"))));
}

TEST_F(ScratchPoolTest, LargeBlocksTogetherHaveAQuarterOfTheBudget) {
  const auto first = Take(8 * kMib);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(used_bytes(), 1024 * kMib);
  // 512 MiB would be too much; so much every feed gets.
  const auto second = Take(6 * kMib);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(used_bytes(), 1280 * kMib);
  EXPECT_EQ(second->num_teams(), 42);
}

TEST_F(ScratchPoolTest, ADeviceThatHasNoMemoryLeavesNothing) {
  backend_.FailAllocation(1);
  EXPECT_THAT(Take(1000), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(used_bytes(), 0);
  backend_.FailAllocation(0);
  EXPECT_THAT(Take(1000), IsOk());
  EXPECT_FALSE(Take(0)->has_value());
}

}  // namespace
}  // namespace datasetd
