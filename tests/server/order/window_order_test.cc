#include "server/order/window_order.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/order/sampler.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMaxSteps = std::numeric_limits<int64_t>::max();

absl::StatusOr<WindowPlan> PlanOf(const std::string& text, int64_t steps,
                                  bool shuffle = false, int64_t shift = 0) {
  return PlanWindows(With(v1::WindowOrder(), text), shuffle, shift, steps, "a");
}

// The first steps of one rank's windows in an epoch.
std::vector<int64_t> StartsOf(const WindowPlan& windows, bool shuffle,
                              uint64_t epoch, int64_t rank = 0,
                              int64_t world_size = 1,
                              uint64_t first_position = 0) {
  SamplerOptions options = {.num_samples = 1,
                            .batch_size = 7,
                            .shuffle = shuffle,
                            .unpadded = true,
                            .seed = 5,
                            .rank = rank,
                            .world_size = world_size,
                            .first_position = first_position};
  options.windows = windows;
  if (windows.is_random) {
    options.num_draws = windows.num_windows;
  } else {
    options.num_samples = static_cast<int64_t>(windows.num_windows);
  }
  auto sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  std::vector<int64_t> starts;
  std::vector<int64_t> batch(7);
  for (int64_t b = 0; b < (*sampler)->batches_per_epoch(); ++b) {
    const auto shape = (*sampler)->Fill(epoch, b, absl::MakeSpan(batch));
    // In pieces, too.
    std::vector<int64_t> row(1);
    for (int64_t r = 0; r < shape.num_samples; ++r) {
      (*sampler)->FillRows(epoch, b, r, absl::MakeSpan(row));
      EXPECT_EQ(row[0], batch[r]);
    }
    starts.insert(starts.end(), batch.begin(),
                  batch.begin() + shape.num_samples);
  }
  return starts;
}

TEST(WindowOrderTest, NumbersOfAClientAreCheckedBeforeTheyAreUsed) {
  struct {
    const char* text;
    int64_t steps;
    int64_t shift;
    const char* words;
  } const kRows[] = {
      {"blocks {}", 10, 0, "length is 0"},
      {"length: 11 blocks {}", 10, 0, "within 1..10"},
      {"length: 10 blocks {}", 10, 1, "within 1..9"},
      {"length: 1 blocks {}", 10, 0xFFFFFFFF, "within 1..0"},
      {"length: 18446744073709551615 random {}", kMaxSteps, 1, "length is 184"},
      {"length: 4 blocks { phase: 7 }", 10, 0, "can begin is 6"},
      {"length: 4 blocks { phase: 18446744073709551615 }", 10, 0, "phase is 1"},
      {"length: 1 blocks { stride: 1 }", kMaxSteps, 0, "at most 4294967295"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(
        PlanOf(row.text, row.steps, /*shuffle=*/false, row.shift),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(row.words)))
        << row.text;
  }
}

TEST(WindowOrderTest, BlocksEndWhereTheStreamDoes) {
  const auto starts = [](const std::string& text, int64_t steps,
                         int64_t shift = 0) {
    return StartsOf(*PlanOf(text, steps, false, shift), false, 0);
  };
  EXPECT_THAT(starts("length: 3 blocks {}", 9), ElementsAre(0, 3, 6));
  EXPECT_THAT(starts("length: 3 blocks {}", 9, 1), ElementsAre(0, 3));
  EXPECT_THAT(starts("length: 3 blocks { stride: 2 phase: 1 }", 9),
              ElementsAre(1, 3, 5));
  EXPECT_THAT(starts("length: 9 blocks {}", 9), ElementsAre(0));
  EXPECT_THAT(starts("length: 2 blocks { stride: 18446744073709551615 }", 9),
              ElementsAre(0));
  const std::string far = "length: 2 blocks { stride: 4611686018427387904 }";
  EXPECT_THAT(starts(far, kMaxSteps), ElementsAre(0, int64_t{1} << 62));
}

TEST(WindowOrderTest, APhaseLeavesAsManyBlocksInEveryEpoch) {
  for (const int64_t steps : {9, 10, 11, 12, 100, 101}) {
    const auto windows = PlanOf("length: 3 blocks { stride: 4 }", steps, true);
    std::vector<bool> phases(4);
    for (uint64_t epoch = 0; epoch < 60; ++epoch) {
      std::vector<int64_t> starts = StartsOf(*windows, true, epoch);
      std::sort(starts.begin(), starts.end());
      ASSERT_EQ(starts.size(), windows->num_windows);
      ASSERT_GE(starts.front(), 0);
      ASSERT_LT(starts.front(), 4);
      ASSERT_LE(starts.back() + 3, steps);
      for (size_t i = 1; i < starts.size(); ++i) {
        ASSERT_EQ(starts[i], starts[i - 1] + 4);
      }
      phases[static_cast<size_t>(starts.front())] = true;
    }
    EXPECT_THAT(phases, ElementsAre(true, true, true, true)) << steps;
  }
}

TEST(WindowOrderTest, RanksDivideAnOrderAndAnyOtherNumberGoesOn) {
  for (const char* const text :
       {"length: 3 blocks {}", "length: 3 random { num_windows: 41 }"}) {
    const auto windows = PlanOf(text, 130, /*shuffle=*/true);
    const bool shuffle = !windows->is_random;
    const std::vector<int64_t> whole = StartsOf(*windows, shuffle, 3);
    ASSERT_EQ(whole.size(), windows->num_windows);
    for (const int64_t world_size : {1, 2, 4, 8}) {
      for (const uint64_t first : {0, 1, 17}) {
        std::vector<int64_t> found(whole.begin(), whole.begin() + first);
        found.resize(whole.size(), -1);
        for (int64_t rank = 0; rank < world_size; ++rank) {
          size_t at = first + static_cast<size_t>(rank);
          for (const int64_t start :
               StartsOf(*windows, shuffle, 3, rank, world_size, first)) {
            // With random windows each rank has as many, beyond the end.
            if (at < found.size()) found[at] = start;
            at += static_cast<size_t>(world_size);
          }
        }
        EXPECT_EQ(found, whole) << text << ", " << world_size << " ranks";
      }
    }
  }
}

TEST(WindowOrderTest, StartsAreDrawnFromTheWholeOfALongStream) {
  const auto windows =
      PlanOf("length: 3 random { num_windows: 20000 }", int64_t{1} << 40);
  const std::vector<int64_t> starts = StartsOf(*windows, false, 1);
  std::vector<int> counts(16);
  for (const int64_t start : starts) {
    ASSERT_GE(start, 0);
    ASSERT_LE(start, (int64_t{1} << 40) - 3);
    ++counts[static_cast<size_t>(start >> 36)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1250, 6 * 35);
  EXPECT_EQ(PlanOf("length: 10 random {}", 1005, false, 1)->num_windows, 100);
  EXPECT_EQ(PlanOf("length: 9 random {}", 9)->num_windows, 1);
}

}  // namespace
}  // namespace datasetd
