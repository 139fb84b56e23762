#include "server/feed/feed_plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host/host_backend.h"
#include "cuda/kernels/program/augment_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kNumSamples = 100;
constexpr int64_t kMib = 1 << 20;

// Of samples of 8 x 6 x 3 = 144 bytes.
class FeedPlanTest : public ::testing::Test {
 protected:
  FeedPlanTest() {
    Dataset::Contents contents;
    contents.name = "a";
    contents.backend = backend_.get();
    contents.num_samples = kNumSamples;
    contents.fields = {{.name = "image", .shape = {8, 6, 3}, .is_image = true}};
    contents.memory.push_back(*backend_->Allocate(kNumSamples * 144));
    dataset_ = std::make_shared<Dataset>(std::move(contents));
  }
  static FeedOptions Options(int64_t batch_size) {
    FeedOptions options;
    options.dataset = "a";
    options.batch_size = batch_size;
    return options;
  }
  FeedPlan Plan(const FeedOptions& options) {
    auto plan = PlanFeed(options, dataset_);
    EXPECT_THAT(plan, IsOk());
    return *std::move(plan);
  }

  std::unique_ptr<Backend> backend_ = CreateHostBackend({.num_threads = 1});
  std::shared_ptr<const Dataset> dataset_;
};

TEST_F(FeedPlanTest, PrefetchIsWhatFits64MibWithin4And32) {
  // A slot: 144 bytes of image and 8 of index for each row.
  EXPECT_EQ(Plan(Options(4)).prefetch, 32);
  // 4.75 MiB: 13.47 of them.
  EXPECT_EQ(Plan(Options(32768)).prefetch, 13);
  // 29 MiB.
  EXPECT_EQ(Plan(Options(200'000)).prefetch, 4);
  FeedOptions options = Options(4);
  options.prefetch = 2;
  EXPECT_EQ(Plan(options).prefetch, 2);
}

TEST_F(FeedPlanTest, TheSlabHasTwoSlotsMoreInWholePieces) {
  FeedOptions options = Options(32768);
  options.prefetch = 5;
  const FeedPlan plan = Plan(options);
  EXPECT_EQ(plan.num_slots, 7);
  EXPECT_EQ(plan.feed.num_slots, 7);
  EXPECT_EQ(plan.layout.slot_stride_bytes, 32768 * (144 + 8));
  EXPECT_EQ(plan.feed.slot_stride_bytes, 32768 * (144 + 8));
  // 33.25 MiB.
  EXPECT_EQ(plan.slab_bytes, 34 * kMib);
  options = Options(4);
  EXPECT_EQ(Plan(options).slab_bytes, 2 * kMib);
}

TEST_F(FeedPlanTest, ScratchCountsSlotsSubsetAndOrder) {
  FeedOptions options = Options(4);
  options.prefetch = 2;
  const int64_t scratch_bytes = Plan(options).scratch_bytes;
  EXPECT_EQ(scratch_bytes,
            4 * 4 * 8 + static_cast<int64_t>(sizeof(DeviceProgram)));
  options.subset = {9, 0, 4};
  EXPECT_EQ(Plan(options).scratch_bytes, scratch_bytes + 3 * 4);
  options.subset.reset();
  options.has_client_order = true;
  const FeedPlan plan = Plan(options);
  ASSERT_TRUE(plan.order.has_value());
  EXPECT_EQ(plan.scratch_bytes,
            scratch_bytes + ClientOrder::SizeBytes(*plan.order));
}

TEST_F(FeedPlanTest, WeightsAreCountedAndLimited) {
  FeedOptions options = Options(4);
  const int64_t scratch_bytes = Plan(options).scratch_bytes;
  options.weighted_order = {.num_samples = kNumSamples};
  FeedPlan plan = Plan(options);
  ASSERT_TRUE(plan.weights.has_value());
  // Beside the weights, a guide of 2^4 + 1 places.
  EXPECT_EQ(plan.scratch_bytes, scratch_bytes + kNumSamples * 8 + 17 * 4);
  EXPECT_EQ(plan.feed.sampler.num_draws, kNumSamples);
  EXPECT_EQ(plan.feed.sampler.num_samples, kNumSamples);
  options.weighted_order = {
      .num_samples = 1 << 24, .lists_samples = true, .num_draws = 7};
  plan = Plan(options);
  EXPECT_EQ(plan.scratch_bytes,
            scratch_bytes + (12 << 24) + ((1 << 22) + 1) * 4);
  EXPECT_EQ(plan.feed.sampler.num_draws, 7);
  EXPECT_EQ(plan.feed.sampler.num_samples, 1 << 24);

  const auto refuse = [&](FeedOptions::WeightedOrder order, const char* text) {
    options.weighted_order = order;
    EXPECT_THAT(PlanFeed(options, dataset_),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("weighted_order"), HasSubstr(text))));
  };
  refuse({.num_samples = kNumSamples - 1},
         "num_samples is 99, and dataset 'a' has 100 samples");
  refuse({}, "num_samples is 0, and dataset 'a' has 100 samples");
  refuse({.lists_samples = true}, "num_samples is 0; there can be 1 to");
  refuse({.num_samples = (1 << 24) + 1, .lists_samples = true},
         "num_samples is 16777217; there can be 1 to 16777216 weights");
  refuse({.num_samples = ~uint64_t{0}, .lists_samples = true},
         "there can be 1 to 16777216 weights");
}

TEST_F(FeedPlanTest, AClientsOrderHasRoomForTwoOfEachSlotAndMore) {
  const auto capacity = [this](int64_t batch_size) {
    FeedOptions options = Options(batch_size);
    options.prefetch = 2;
    options.has_client_order = true;
    return Plan(options).order->capacity;
  };
  EXPECT_EQ(capacity(4), 8 + 64);
  EXPECT_EQ(capacity(4096), 8 + 16);
  EXPECT_EQ(capacity(100'000), 8 + 1);
  EXPECT_FALSE(Plan(Options(4)).order.has_value());
}

TEST_F(FeedPlanTest, ItSaysWhatTheFeedDrawsFrom) {
  FeedOptions options = Options(4);
  options.seed = 5;
  options.shuffle = true;
  options.start = {.epoch = 2, .batch = 1};
  const FeedPlan all = Plan(options);
  EXPECT_EQ(all.feed.dataset, dataset_);
  EXPECT_EQ(all.feed.program->seed, 5);
  EXPECT_EQ(all.feed.program->num_fields, 1);
  EXPECT_EQ(all.feed.sampler.num_samples, kNumSamples);
  EXPECT_EQ(all.feed.sampler.seed, 5);
  EXPECT_TRUE(all.feed.sampler.shuffle);
  EXPECT_EQ(all.feed.start.epoch, 2);
  EXPECT_EQ(all.feed.start.batch, 1);
  options.subset = {9, 0, 4};
  EXPECT_EQ(Plan(options).feed.sampler.num_samples, 3);
}

TEST_F(FeedPlanTest, WhatCannotBeServedIsNamed) {
  EXPECT_THAT(
      PlanFeed(Options(0), dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("batch_size")));
  FeedOptions options = Options(4);
  options.subset = {100};
  EXPECT_THAT(
      PlanFeed(options, dataset_),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("subset[0]: 100")));
  options = Options(4);
  options.field_names = {"mask"};
  EXPECT_THAT(
      PlanFeed(options, dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'mask'")));
}

}  // namespace
}  // namespace datasetd
