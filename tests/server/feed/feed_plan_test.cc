#include "server/feed/feed_plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/host/host_backend.h"
#include "cuda/kernels/program/augment_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kNumSamples = 100;
constexpr int64_t kMib = 1 << 20;

// The dataset has samples of 8 x 6 x 3 = 144 bytes.
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
  static v1::FeedOptions Options(uint32_t batch_size,
                                 const std::string& text = "") {
    v1::FeedOptions options;
    options.set_dataset("a");
    options.set_batch_size(batch_size);
    return With(options, text);
  }
  FeedPlan Plan(const v1::FeedOptions& options) {
    auto plan = PlanFeed(options, {}, dataset_);
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
  EXPECT_EQ(Plan(Options(4, "prefetch: 2")).prefetch, 2);
}

TEST_F(FeedPlanTest, AGpuWithMuchMemoryFreePrefetchesMore) {
  constexpr uint64_t kGb = 1'000'000'000;
  const auto prefetch = [&](uint64_t total_bytes, uint64_t free_bytes,
                            uint32_t batch_size) {
    FakeBackend gpu({.is_host = false, .total_bytes = total_bytes});
    const auto plan =
        PlanFeed(Options(batch_size), {}, dataset_, {}, &gpu, free_bytes);
    EXPECT_THAT(plan, IsOk());
    return plan.ok() ? plan->prefetch : 0;
  };
  // 256 MiB of slots of 4.75 MiB: 53.9 of them.
  EXPECT_EQ(prefetch(80 * kGb, 80 * kGb, 32768), 53);
  EXPECT_EQ(prefetch(80 * kGb, 80 * kGb, 4), 62);
  EXPECT_EQ(prefetch(40 * kGb, 5 * kGb, 32768), 53);
  // A sixteenth of what is free: 128 MiB.
  EXPECT_EQ(prefetch(80 * kGb, uint64_t{2} << 30, 32768), 26);
  // As on the host.
  EXPECT_EQ(prefetch(80 * kGb, kGb, 32768), 13);
  EXPECT_EQ(prefetch(80 * kGb, kGb, 4), 32);
  EXPECT_EQ(prefetch(24 * kGb, 24 * kGb, 32768), 13);
}

TEST_F(FeedPlanTest, TheSlabHasTwoSlotsMoreInWholePieces) {
  const FeedPlan plan = Plan(Options(32768, "prefetch: 5"));
  EXPECT_EQ(plan.num_slots, 7);
  EXPECT_EQ(plan.feed.num_slots, 7);
  EXPECT_EQ(plan.layout.slot_stride_bytes(), 32768 * (144 + 8));
  EXPECT_EQ(plan.feed.slot_stride_bytes, 32768 * (144 + 8));
  // 33.25 MiB.
  EXPECT_EQ(plan.slab_bytes, 34 * kMib);
  EXPECT_EQ(Plan(Options(4)).slab_bytes, 2 * kMib);
}

TEST_F(FeedPlanTest, MemoryCountsSlotsSubsetAndOrder) {
  const v1::FeedOptions options = Options(4, "prefetch: 2");
  const int64_t scratch_bytes = Plan(options).scratch_bytes;
  EXPECT_EQ(scratch_bytes, 4 * 4 * 8 + Feed::LaunchBytes(4) +
                               static_cast<int64_t>(sizeof(DeviceProgram)));
  // The orders of two epochs.
  EXPECT_EQ(Plan(With(options, "shuffle: true")).scratch_bytes,
            scratch_bytes + 2 * kNumSamples * 2);
  const FeedPlan some = Plan(With(options, "subset_size: 3"));
  EXPECT_EQ(some.scratch_bytes, scratch_bytes);
  // A bit for each sample of the dataset, too.
  EXPECT_GE(some.array_bytes, 3 * 4 + kNumSamples / 8);
  EXPECT_LE(some.array_bytes, 3 * 4 + kNumSamples / 8 + 8);
  const FeedPlan plan = Plan(With(options, "client_order {}"));
  ASSERT_TRUE(plan.order.has_value());
  EXPECT_EQ(plan.scratch_bytes,
            scratch_bytes + ClientOrder::SizeBytes(*plan.order));
}

TEST_F(FeedPlanTest, WeightsAreCountedAndLimited) {
  const int64_t scratch_bytes = Plan(Options(4)).scratch_bytes;
  const auto weighted = [](const std::string& order) {
    return Options(4, absl::StrCat("weighted_order { ", order, " }"));
  };
  FeedPlan plan = Plan(weighted("num_samples: 100"));
  ASSERT_TRUE(plan.weights.has_value());
  // Beside the weights, a guide of 2^4 + 1 places.
  EXPECT_EQ(plan.scratch_bytes, scratch_bytes);
  EXPECT_EQ(plan.array_bytes, kNumSamples * 8 + 17 * 4);
  EXPECT_EQ(plan.feed.sampler.num_draws, kNumSamples);
  EXPECT_EQ(plan.feed.sampler.num_samples, kNumSamples);
  plan =
      Plan(weighted("num_samples: 16777216 lists_samples: true num_draws: 7"));
  EXPECT_EQ(plan.array_bytes, (12 << 24) + ((1 << 22) + 1) * 4);
  EXPECT_EQ(plan.feed.sampler.num_draws, 7);
  EXPECT_EQ(plan.feed.sampler.num_samples, 1 << 24);

  EXPECT_EQ(
      Plan(weighted("num_samples: 100 num_draws: 0")).feed.sampler.num_draws,
      0);

  const auto refuse = [&](const char* order, const char* text) {
    EXPECT_THAT(PlanFeed(weighted(order), {}, dataset_),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("weighted_order"), HasSubstr(text))));
  };
  refuse("num_samples: 99",
         "num_samples is 99, and dataset 'a' has 100 samples");
  refuse("", "num_samples is 0, and dataset 'a' has 100 samples");
  refuse("lists_samples: true", "num_samples is 0; there can be 1 to");
  refuse("num_samples: 16777217 lists_samples: true",
         "num_samples is 16777217; there can be 1 to 16777216 weights");
  refuse("num_samples: 18446744073709551615 lists_samples: true",
         "there can be 1 to 16777216 weights");
}

TEST_F(FeedPlanTest, AClientsOrderHasRoomForTwoOfEachSlotAndMore) {
  const auto capacity = [this](uint32_t batch_size) {
    return Plan(Options(batch_size, "prefetch: 2 client_order {}"))
        .order->capacity;
  };
  EXPECT_EQ(capacity(4), 8 + 64);
  EXPECT_EQ(capacity(4096), 8 + 16);
  EXPECT_EQ(capacity(100'000), 8 + 1);
  EXPECT_FALSE(Plan(Options(4)).order.has_value());
}

TEST_F(FeedPlanTest, ItSaysWhatTheFeedDrawsFrom) {
  const v1::FeedOptions options =
      Options(4, "seed: 5 shuffle: true start { epoch: 2 batch: 1 }");
  const FeedPlan all = Plan(options);
  EXPECT_EQ(all.feed.dataset, dataset_);
  EXPECT_EQ(all.feed.program->seed, 5);
  EXPECT_EQ(all.feed.program->num_fields, 1);
  EXPECT_EQ(all.feed.sampler.num_samples, kNumSamples);
  EXPECT_EQ(all.feed.sampler.seed, 5);
  EXPECT_TRUE(all.feed.sampler.shuffle);
  EXPECT_EQ(all.feed.start.epoch, 2);
  EXPECT_EQ(all.feed.start.batch, 1);
  EXPECT_EQ(all.feed.sampler.world_size, 1);
  const FeedPlan some = Plan(With(options, "subset_size: 3"));
  EXPECT_EQ(some.feed.sampler.num_samples, 3);
}

TEST_F(FeedPlanTest, WhatCannotBeServedIsNamed) {
  EXPECT_THAT(
      PlanFeed(Options(0), {}, dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("batch_size")));
  EXPECT_THAT(
      PlanFeed(Options(4, "subset_size: 101"), {}, dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("subset_size is 101, and dataset 'a' has 100")));
  EXPECT_THAT(
      PlanFeed(Options(4, "field_names: 'mask'"), {}, dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'mask'")));
  const std::string weighted =
      "weighted_order { num_samples: 100 num_draws: 9 } ";
  const std::vector<std::pair<std::string, std::string>> orders = {
      {"rank: 2 world_size: 2", "rank is 2; with world_size 2"},
      {"drop_last: true unpadded: true", "drop_last and unpadded exclude"},
      {"rank: 2 world_size: 3 unpadded: true start { batch: 10 }",
       "an epoch has 9 batches"},
      {"first_position: 100", "first_position is 100; with 100 samples"},
      {"subset_size: 1 first_position: 1", "with 1 samples"},
      {"rows_per_epoch: 3 unpadded: true", "unpadded"},
      {weighted + "rows_per_epoch: 3", "num_draws is for weights"},
      {"rows_per_epoch: 8 start { batch: 3 }", "an epoch has 2 batches"},
      {weighted + "first_position: 9", "first_position is 9; with 9 draws"},
      {weighted + "rank: 1", "rank is 1; with world_size 1"},
      {weighted + "start { batch: 4 }", "start: epoch 0, batch 4"},
      {"start { batch: 26 }",
       "start: epoch 0, batch 26 is out of range; an "
       "epoch has 25 batches"},
      {"start { epoch: 4294967296 }", "start: epoch 4294967296"},
      {"client_order {} start { epoch: 4294967296 }",
       "start: epoch 4294967296"}};
  for (const auto& [order, text] : orders) {
    EXPECT_THAT(PlanFeed(Options(4, order), {}, dataset_),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
  EXPECT_THAT(PlanFeed(Options(4, "start { batch: 25 }"), {}, dataset_),
              IsOk());
}

}  // namespace
}  // namespace datasetd
