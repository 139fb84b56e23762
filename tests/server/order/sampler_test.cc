#include "server/order/sampler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/long_form.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::RunsCase;
using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Sampler> Make(const SamplerOptions& options) {
  auto sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return sampler.ok() ? *std::move(sampler) : nullptr;
}

// The samples of one rank in an epoch.
struct RankEpoch {
  std::vector<int64_t> indices;  // all batches, one after the other
  std::vector<int64_t> batch_sizes;
  std::vector<int64_t> padding_rows;  // places in `indices`
};

RankEpoch Collect(Sampler& sampler, int64_t batch_size, uint64_t epoch) {
  RankEpoch result;
  std::vector<int64_t> batch(batch_size + 1);
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
    batch[batch_size] = -7;
    const Sampler::BatchShape shape =
        sampler.Fill(epoch, b, absl::MakeSpan(batch).first(batch_size));
    EXPECT_EQ(batch[batch_size], -7) << "wrote past the end";
    // In pieces, too.
    std::vector<int64_t> rows(shape.num_samples);
    for (int64_t first = 0; first < shape.num_samples;) {
      const int64_t size =
          std::min<int64_t>(first + 1 + b % 3, shape.num_samples - first);
      sampler.FillRows(epoch, b, first,
                       absl::MakeSpan(rows).subspan(first, size));
      first += size;
    }
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), batch.begin()))
        << "batch " << b;
    const Sampler::BatchShape said = sampler.Shape(b);
    EXPECT_EQ(said.num_samples, shape.num_samples);
    EXPECT_EQ(said.num_padding, shape.num_padding);
    result.indices.insert(result.indices.end(), batch.begin(),
                          batch.begin() + shape.num_samples);
    result.batch_sizes.push_back(shape.num_samples);
    const int64_t end = result.indices.size();
    for (int64_t i = shape.num_padding; i > 0; --i) {
      result.padding_rows.push_back(end - i);
    }
  }
  return result;
}

std::vector<int64_t> GlobalOrder(int64_t num_samples, bool shuffle,
                                 uint64_t seed, uint64_t epoch) {
  auto sampler = Make({.num_samples = num_samples,
                       .batch_size = num_samples,
                       .shuffle = shuffle,
                       .seed = seed});
  return Collect(*sampler, num_samples, epoch).indices;
}

std::shared_ptr<const WeightTable> SomeWeights(int64_t num_samples) {
  auto table = std::make_shared<WeightTable>(WeightTable::Options{
      .num_samples = num_samples, .dataset_size = num_samples, .dataset = "d"});
  std::vector<double> weights(num_samples);
  for (int64_t i = 0; i < num_samples; ++i) weights[i] = i % 7;
  EXPECT_TRUE(table->Append(weights).ok());
  EXPECT_TRUE(table->Finish().ok());
  return table;
}

std::shared_ptr<GroupTable> SomeGroups(int64_t num_samples,
                                       int64_t group_size) {
  auto table = std::make_shared<GroupTable>(GroupTable::Options{
      .num_samples = num_samples, .group_size = group_size});
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < num_samples; ++i) {
    classes.push_back(static_cast<int32_t>(i * i % 7));
  }
  EXPECT_TRUE(table->Append(classes).ok());
  EXPECT_TRUE(table->Finish().ok());
  return table;
}

Subset EveryThird(int64_t num_samples) {
  auto subset = std::make_shared<std::vector<uint32_t>>();
  for (uint32_t i = 0; i < num_samples; ++i) subset->push_back(5000 + 3 * i);
  return subset;
}

// ---- What ranks get of an epoch, and of the rest of one ----

// A kind of order: what its only rank has among its options.
struct Order {
  std::string name;
  SamplerOptions options;
};

int64_t NumRows(const SamplerOptions& options) {
  return static_cast<int64_t>(options.num_draws.value_or(
      options.num_groups.value_or(options.num_samples)));
}

// As many rows, each of one sample or of a group. Draws go on beyond the end of
// the epoch; other orders begin again.
std::vector<std::vector<int64_t>> WholeOrder(SamplerOptions options,
                                             uint64_t epoch, int64_t count) {
  const int64_t num_rows = NumRows(options);
  if (options.weights != nullptr) options.num_draws = count;
  if (options.groups != nullptr) options.num_groups = count;
  options.batch_size = NumRows(options) * options.group_size;
  const std::vector<int64_t> samples =
      Collect(*Make(options), options.batch_size, epoch).indices;
  std::vector<std::vector<int64_t>> rows;
  for (auto at = samples.begin(); at != samples.end();
       at += options.group_size) {
    rows.emplace_back(at, at + options.group_size);
  }
  while (static_cast<int64_t>(rows.size()) < count) {
    rows.push_back(rows[rows.size() - num_rows]);
  }
  return rows;
}

class SamplerOrderTest : public ::testing::TestWithParam<Order> {};

// Batches of all sizes, from the beginning and from where others stopped.
TEST_P(SamplerOrderTest, RanksHaveEachPositionOnce) {
  constexpr uint64_t kEpoch = 3;
  SamplerOptions options = GetParam().options;
  const int64_t num_rows = NumRows(options);
  const bool goes_on = options.weights != nullptr || options.groups != nullptr;
  const int64_t unit = options.group_size;
  const auto whole = WholeOrder(options, kEpoch, num_rows + 8);
  for (const int64_t world_size : {1, 3, 8}) {
    for (const int64_t first : {int64_t{0}, num_rows / 2, num_rows - 1}) {
      for (const int64_t batch_size : {int64_t{4}, num_rows + 1}) {
        for (const char* const end : {"padded", "dropped", "unpadded"}) {
          const size_t sum = world_size / 3 + (first > 0 ? 1 : 0) +
                             (first == num_rows - 1 ? 1 : 0) +
                             (batch_size > 4 ? 1 : 0) +
                             (end[0] == 'd'   ? 1
                              : end[0] == 'u' ? 2
                                              : 0);
          if (!RunsCase(sum, 3)) continue;
          SCOPED_TRACE(absl::StrCat(world_size, " ranks from ", first,
                                    ", batches of ", batch_size, ", ", end));
          options.world_size = world_size;
          options.first_position = first;
          options.batch_size = batch_size * unit;
          options.drop_last = end[0] == 'd';
          options.unpadded = end[0] == 'u';
          for (options.rank = 0; options.rank < world_size; ++options.rank) {
            const int64_t left = num_rows - first;
            int64_t num_own = (left + world_size - 1) / world_size;
            if (options.drop_last) {
              num_own = left / world_size / batch_size * batch_size;
            } else if (options.unpadded) {
              num_own = (left - options.rank + world_size - 1) / world_size;
            }
            std::vector<int64_t> expected, padding, sizes;
            for (int64_t row = 0; row < num_own; ++row) {
              const int64_t position = first + options.rank + row * world_size;
              if (position >= num_rows && !goes_on) padding.push_back(row);
              expected.insert(expected.end(), whole[position].begin(),
                              whole[position].end());
              if (row % batch_size == 0) {
                sizes.push_back(std::min(batch_size, num_own - row) * unit);
              }
            }
            auto sampler = Make(options);
            const RankEpoch epoch =
                Collect(*sampler, options.batch_size, kEpoch);
            ASSERT_EQ(epoch.indices, expected);
            ASSERT_EQ(epoch.padding_rows, padding);
            ASSERT_EQ(epoch.batch_sizes, sizes);
            if (num_own <= batch_size || options.mixture.has_value()) continue;
            EXPECT_EQ(sampler->FirstPosition(1),
                      first + options.rank + batch_size * world_size);
          }
        }
      }
    }
  }
}

std::vector<Order> AllOrders() {
  std::vector<Order> orders;
  for (const int64_t n : {1, 2, 7, 103, 65'536, 65'537}) {
    for (const bool shuffle : {false, true}) {
      orders.push_back({absl::StrCat(shuffle ? "Shuffled" : "InOrder", n),
                        {.num_samples = n, .shuffle = shuffle, .seed = 42}});
    }
  }
  const SamplerOptions some = {.num_samples = 40, .seed = 9};
  for (const bool shuffle : {false, true}) {
    orders.push_back({absl::StrCat("Subset", shuffle), some});
    orders.back().options.shuffle = shuffle;
    orders.back().options.subset = EveryThird(40);
    orders.push_back({absl::StrCat("Mixture", shuffle),
                      {.num_samples = 137,
                       .shuffle = shuffle,
                       .seed = 5,
                       .mixture = MixtureOptions{.num_samples = {7, 100, 30},
                                                 .num_rows = {50, 20, 13}},
                       .num_draws = 83}});
  }
  for (const uint64_t num_draws : {7, 40, 100}) {
    orders.push_back({absl::StrCat("Weights", num_draws), some});
    orders.back().options.weights = SomeWeights(40);
    orders.back().options.num_draws = num_draws;
  }
  for (const bool has_subset : {false, true}) {
    orders.push_back({absl::StrCat("Groups", has_subset), some});
    orders.back().options.groups = SomeGroups(40, 3);
    orders.back().options.num_groups = 13;
    orders.back().options.group_size = 3;
    if (has_subset) orders.back().options.subset = EveryThird(40);
  }
  return orders;
}

INSTANTIATE_TEST_SUITE_P(Kinds, SamplerOrderTest,
                         ::testing::ValuesIn(AllOrders()),
                         [](const auto& info) { return info.param.name; });

TEST(SamplerTest, AShuffledEpochHasEachSampleOnceAndASubsetItsOwn) {
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{65'536},
                          int64_t{65'537}, int64_t{131'101}}) {
    std::vector<int64_t> order = GlobalOrder(n, /*shuffle=*/true, 42, 3);
    EXPECT_EQ(std::is_sorted(order.begin(), order.end()), n == 1);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i);
  }
  SamplerOptions options = {
      .num_samples = 101, .batch_size = 101, .shuffle = true, .seed = 9};
  std::vector<int64_t> places = Collect(*Make(options), 101, 4).indices;
  options.subset = EveryThird(101);
  for (int64_t& place : places) place = (*options.subset)[place];
  EXPECT_EQ(Collect(*Make(options), 101, 4).indices, places);
}

TEST(SamplerTest, InOrderWithoutShuffle) {
  auto sampler =
      Make({.num_samples = 5, .batch_size = 2, .rank = 1, .world_size = 2});
  ASSERT_EQ(sampler->batches_per_epoch(), 2);
  std::vector<int64_t> batch(2, -1);
  Sampler::BatchShape shape = sampler->Fill(0, 0, absl::MakeSpan(batch));
  EXPECT_EQ(shape.num_samples, 2);
  EXPECT_EQ(shape.num_padding, 0);
  EXPECT_THAT(batch, ElementsAre(1, 3));
  shape = sampler->Fill(0, 1, absl::MakeSpan(batch));
  EXPECT_EQ(shape.num_samples, 1);
  EXPECT_EQ(shape.num_padding, 1);
  EXPECT_THAT(batch, ElementsAre(0, 3)) << "only one row is written";
}

TEST(SamplerTest, MoreRanksThanSamplesWrapsRepeatedly) {
  for (int64_t rank = 0; rank < 8; ++rank) {
    auto sampler = Make(
        {.num_samples = 3, .batch_size = 4, .rank = rank, .world_size = 8});
    const RankEpoch epoch = Collect(*sampler, 4, 0);
    EXPECT_THAT(epoch.indices, ElementsAre(rank % 3));
    EXPECT_EQ(epoch.padding_rows.size(), rank < 3 ? 0u : 1u);
    auto dropping = Make({.num_samples = 3,
                          .batch_size = 4,
                          .drop_last = true,
                          .rank = rank,
                          .world_size = 8});
    EXPECT_EQ(dropping->batches_per_epoch(), 0);
  }
}

TEST(SamplerTest, ExtremeSizesDoNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMaxSamples = 0xFFFFFFFF;
  for (bool shuffle : {false, true}) {
    for (bool drop_last : {false, true}) {
      auto one = Make({.num_samples = kMaxSamples,
                       .batch_size = 1,
                       .shuffle = shuffle,
                       .drop_last = drop_last});
      EXPECT_EQ(one->batches_per_epoch(), kMaxSamples);
      int64_t index = -1;
      one->Fill(std::numeric_limits<uint64_t>::max(), kMaxSamples - 1,
                absl::MakeSpan(&index, 1));
      EXPECT_GE(index, 0);
      EXPECT_LT(index, kMaxSamples);

      auto huge_batch = Make({.num_samples = kMaxSamples,
                              .batch_size = kMax,
                              .shuffle = shuffle,
                              .drop_last = drop_last});
      EXPECT_EQ(huge_batch->batches_per_epoch(), drop_last ? 0 : 1);

      auto huge_world = Make({.num_samples = kMaxSamples,
                              .batch_size = 1,
                              .shuffle = shuffle,
                              .drop_last = drop_last,
                              .rank = kMax - 1,
                              .world_size = kMax});
      EXPECT_EQ(huge_world->batches_per_epoch(), drop_last ? 0 : 1);
      if (!drop_last) {
        const Sampler::BatchShape shape =
            huge_world->Fill(0, 0, absl::MakeSpan(&index, 1));
        EXPECT_EQ(shape.num_padding, 1);
        EXPECT_TRUE(shuffle || index == (kMax - 1) % kMaxSamples);
      }
    }
  }
}

TEST(SamplerTest, PreparingSeekingAndGoingBackChangeNothing) {
  constexpr int64_t kSize = 1000;
  std::vector<std::vector<int64_t>> orders;
  for (uint64_t epoch = 0; epoch < 6; ++epoch) {
    orders.push_back(GlobalOrder(kSize, true, 9, epoch));
  }
  auto sampler = Make(
      {.num_samples = kSize, .batch_size = 100, .shuffle = true, .seed = 9});
  std::vector<int64_t> batch(100);
  // Negative: prepare that epoch, less one.
  for (int step : {0, -2, 0, 1, -3, -4, 1, 2, 5, 0, -1, 0, -5, -6, 4, 5, 3}) {
    if (step < 0) {
      sampler->Prepare(-step - 1, /*nanoseconds=*/0);
      continue;
    }
    for (int64_t b : {7, 0}) {
      sampler->Fill(step, b, absl::MakeSpan(batch));
      EXPECT_TRUE(std::equal(batch.begin(), batch.end(),
                             orders[step].begin() + 100 * b))
          << "epoch " << step << " batch " << b;
    }
  }
}

TEST(SamplerTest, EpochsAboveThirtyTwoBitsAreDifferent) {
  for (int64_t n : {1000, 100000}) {
    EXPECT_NE(GlobalOrder(n, true, 1, 7),
              GlobalOrder(n, true, 1, 7 + (uint64_t{1} << 32)));
  }
}

TEST(SamplerTest, NamesTheOptionThatIsOutOfRange) {
  const SamplerOptions good = {
      .num_samples = 10, .batch_size = 2, .rank = 1, .world_size = 2};
  ASSERT_TRUE(Sampler::Create(good).ok());
  struct Case {
    const char* name;
    int64_t SamplerOptions::*option;
    int64_t value;
  };
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  for (const Case& c : std::vector<Case>{
           {"num_samples", &SamplerOptions::num_samples, 0},
           {"num_samples", &SamplerOptions::num_samples, -1},
           {"num_samples", &SamplerOptions::num_samples, int64_t{1} << 32},
           {"batch_size", &SamplerOptions::batch_size, 0},
           {"batch_size", &SamplerOptions::batch_size, kMin},
           {"world_size", &SamplerOptions::world_size, 0},
           {"world_size", &SamplerOptions::world_size, -3},
           {"rank", &SamplerOptions::rank, -1},
           {"rank", &SamplerOptions::rank, 2}}) {
    SamplerOptions options = good;
    options.*c.option = c.value;
    EXPECT_THAT(Sampler::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat(c.name, " is ", c.value))));
  }
}

TEST(SamplerTest, AnEpochCannotBeginAtItsEnd) {
  for (const uint64_t first : {uint64_t{20}, uint64_t{1} << 63, ~uint64_t{0}}) {
    const absl::Status status =
        Sampler::Create(
            {.num_samples = 20, .batch_size = 4, .first_position = first})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("first_position is ", first,
                           "; with 20 samples it must be within 0..19"));
  }
}

TEST(SamplerTest, RowsPerEpochWrapAroundOrAreCut) {
  // The second has no table.
  for (const int64_t num_samples : {int64_t{10}, int64_t{66'000}}) {
    for (const bool shuffle : {false, true}) {
      SamplerOptions options = {.num_samples = num_samples,
                                .batch_size = num_samples + 3,
                                .shuffle = shuffle,
                                .seed = 8};
      const std::vector<int64_t> order =
          Collect(*Make(options), options.batch_size, 1).indices;
      ASSERT_EQ(static_cast<int64_t>(order.size()), num_samples);
      for (const bool drop_last : {false, true}) {
        for (const int64_t rank : {0, 2}) {
          for (const uint64_t num_rows :
               {uint64_t{0}, uint64_t{2}, uint64_t(num_samples) + 1}) {
            options.batch_size = 4;
            options.drop_last = drop_last;
            options.rank = rank;
            options.world_size = 3;
            options.rows_per_epoch = num_rows;
            const RankEpoch epoch = Collect(*Make(options), 4, 1);
            const size_t wanted =
                drop_last ? num_rows - num_rows % 4 : num_rows;
            ASSERT_EQ(epoch.indices.size(), wanted);
            std::vector<int64_t> padding;
            for (size_t row = 0; row < wanted; ++row) {
              const size_t position = rank + row * 3;
              ASSERT_EQ(epoch.indices[row], order[position % num_samples]);
              if (position >= static_cast<size_t>(num_samples)) {
                padding.push_back(static_cast<int64_t>(row));
              }
            }
            EXPECT_EQ(epoch.padding_rows, padding);
          }
        }
      }
    }
  }
}

TEST(SamplerTest, RowsPerEpochThatCannotBe) {
  const SamplerOptions good = {
      .num_samples = 5, .batch_size = 1, .rows_per_epoch = 0xFFFFFFFF};
  EXPECT_EQ(*Sampler::CountBatches(good), 0xFFFFFFFF);
  const auto message = [&](void (*change)(SamplerOptions&)) {
    SamplerOptions options = good;
    change(options);
    return std::string(Sampler::CountBatches(options).status().message());
  };
  EXPECT_EQ(message([](SamplerOptions& o) { o.rows_per_epoch = 1ull << 32; }),
            "rows_per_epoch is 4294967296; it must be within 0..4294967295");
  for (void (*const change)(SamplerOptions&) :
       {+[](SamplerOptions& o) { o.unpadded = true; },
        +[](SamplerOptions& o) { o.first_position = 1; },
        +[](SamplerOptions& o) { o.num_draws = 3; }}) {
    EXPECT_THAT(message(change), HasSubstr("must not be set"));
  }
}

TEST(SamplerTest, GroupsThatCannotBe) {
  const SamplerOptions good = {.num_samples = 5,
                               .batch_size = 4,
                               .groups = SomeGroups(5, 2),
                               .num_groups = 3,
                               .group_size = 2};
  const auto message = [&](void (*change)(SamplerOptions&)) {
    SamplerOptions options = good;
    change(options);
    const absl::Status status = Sampler::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(Sampler::Create(good).ok());
  EXPECT_EQ(message([](SamplerOptions& o) { o.first_position = 3; }),
            "first_position is 3; with 3 groups it must be below that");
  EXPECT_EQ(message([](SamplerOptions& o) { o.num_groups = 0x7FFFFFFF; }),
            "num_groups is 2147483647; with groups of 2 and world_size 1 it "
            "must be within 1..2147483646");
  EXPECT_THAT(message([](SamplerOptions& o) { o.num_groups = 0; }),
              HasSubstr("num_groups is 0"));
  EXPECT_THAT(message([](SamplerOptions& o) { o.batch_size = 5; }),
              HasSubstr("group_size is 2; it must be at least 1 and divide"));
  EXPECT_THAT(message([](SamplerOptions& o) { o.shuffle = true; }),
              HasSubstr("exclude shuffle"));
}

TEST(SamplerTest, AnEpochMayHaveNoDraws) {
  auto sampler = Make({.num_samples = 5,
                       .batch_size = 1,
                       .weights = SomeWeights(5),
                       .num_draws = 0});
  EXPECT_EQ(sampler->batches_per_epoch(), 0);
}

TEST(SamplerTest, DrawsByWeightThatCannotBe) {
  const SamplerOptions good = {.num_samples = 5,
                               .batch_size = 1,
                               .weights = SomeWeights(5),
                               .num_draws = 5};
  const auto message = [&](void (*change)(SamplerOptions&)) {
    SamplerOptions options = good;
    change(options);
    const absl::Status status = Sampler::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(Sampler::Create(good).ok());
  EXPECT_EQ(message([](SamplerOptions& o) { o.first_position = 5; }),
            "first_position is 5; with 5 draws it must be 0 or below that");
  EXPECT_EQ(message([](SamplerOptions& o) { o.num_draws = 0xFFFFFFFF; }),
            "num_draws is 4294967295; with world_size 1 it must be within "
            "0..4294967294");
  EXPECT_THAT(message([](SamplerOptions& o) { o.world_size = 1ll << 40; }),
              HasSubstr("num_draws is 5"));
  EXPECT_THAT(message([](SamplerOptions& o) { o.shuffle = true; }),
              HasSubstr("exclude shuffle"));
}

TEST(SamplerTest, BatchesAreCountedBeforeThereAreWeights) {
  SamplerOptions options = {.num_samples = 5, .batch_size = 2, .num_draws = 11};
  EXPECT_EQ(*Sampler::CountBatches(options), 6);
  options.drop_last = true;
  EXPECT_EQ(*Sampler::CountBatches(options), 5);
  options.first_position = 11;
  EXPECT_EQ(Sampler::CountBatches(options).status().message(),
            "first_position is 11; with 11 draws it must be 0 or below that");
}

// ---- Mixtures ----

// Parts of 7, 100 and 30 samples, of which an epoch has 50, 20 and 13 rows.
SamplerOptions Mixed(bool shuffle, bool is_fixed_per_batch) {
  return {.num_samples = 137,
          .batch_size = 4,
          .shuffle = shuffle,
          .seed = 5,
          .mixture = MixtureOptions{.num_samples = {7, 100, 30},
                                    .num_rows = {50, 20, 13},
                                    .is_fixed_per_batch = is_fixed_per_batch},
          .num_draws = 83};
}

size_t PartOfSample(int64_t sample) {
  return sample < 7 ? 0 : sample < 107 ? 1 : 2;
}

std::vector<int64_t> CountParts(const std::vector<int64_t>& samples) {
  std::vector<int64_t> counts(3);
  for (const int64_t sample : samples) ++counts[PartOfSample(sample)];
  return counts;
}

class MixtureTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  SamplerOptions Options() const {
    return Mixed(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Orders, MixtureTest,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Bool()));

TEST_P(MixtureTest, EachPassOfAPartHasItsSamplesOnceAcrossEpochs) {
  const std::vector<int64_t> sizes = {7, 100, 30};
  // The draws of each part, in the order of its rows within an epoch.
  std::vector<std::vector<int64_t>> draws(3);
  auto sampler = Make(Options());
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const RankEpoch all = Collect(*sampler, 4, epoch);
    ASSERT_THAT(CountParts(all.indices), ElementsAre(50, 20, 13));
    for (const int64_t sample : all.indices) {
      draws[PartOfSample(sample)].push_back(sample);
    }
  }
  for (size_t d = 0; d < draws.size(); ++d) {
    // As often as there were whole passes, and at most once more.
    std::map<int64_t, size_t> counts;
    for (const int64_t sample : draws[d]) ++counts[sample];
    const size_t num_passes = draws[d].size() / sizes[d];
    EXPECT_EQ(counts.size(), static_cast<size_t>(sizes[d]));
    for (const auto& [sample, count] : counts) {
      EXPECT_GE(count, num_passes) << sample;
      EXPECT_LE(count, num_passes + 1) << sample;
    }
  }
}

TEST_P(MixtureTest, TheRestOfAnEpochIsForOtherBatchesAndRanks) {
  SamplerOptions options = Options();
  const auto rows_of_ranks = [&](int64_t num_batches) {
    std::vector<int64_t> rows;
    for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
      auto sampler = Make(options);
      const RankEpoch rank = Collect(*sampler, options.batch_size, 2);
      const size_t end =
          std::min<size_t>(rank.indices.size() - rank.padding_rows.size(),
                           num_batches * options.batch_size);
      rows.insert(rows.end(), rank.indices.begin(), rank.indices.begin() + end);
    }
    options.rank = 0;
    return rows;
  };
  std::vector<int64_t> whole = rows_of_ranks(1000);
  options.world_size = 3;
  std::vector<int64_t> all = rows_of_ranks(2);
  for (const int64_t world_size : {2, 5}) {
    std::vector<int64_t> parts = all;
    SamplerOptions before = options;
    options.first_position = 2 * 4 * 3;
    options.world_size = world_size;
    options.batch_size = 7;
    const std::vector<int64_t> rest = rows_of_ranks(1000);
    parts.insert(parts.end(), rest.begin(), rest.end());
    std::sort(parts.begin(), parts.end());
    std::sort(whole.begin(), whole.end());
    EXPECT_EQ(parts, whole) << world_size;
    options = before;
  }
}

TEST(SamplerTest, BatchesOfAMixtureHaveFixedShares) {
  for (const bool shuffle : {false, true}) {
    SamplerOptions options = Mixed(shuffle, /*is_fixed_per_batch=*/true);
    options.batch_size = 10;
    options.world_size = 2;
    std::vector<std::unique_ptr<Sampler>> ranks;
    for (options.rank = 0; options.rank < 2; ++options.rank) {
      ranks.push_back(Make(options));
    }
    std::vector<int64_t> indices(10);
    for (uint64_t b = 0; b < 4; ++b) {
      std::vector<int64_t> total(3);
      std::vector<std::vector<int64_t>> of_ranks;
      for (const auto& rank : ranks) {
        rank->Fill(1, b, absl::MakeSpan(indices));
        of_ranks.push_back(CountParts(indices));
        for (size_t d = 0; d < 3; ++d) total[d] += of_ranks.back()[d];
      }
      const double shares[] = {20 * 50 / 83.0, 20 * 20 / 83.0, 20 * 13 / 83.0};
      for (size_t d = 0; d < 3; ++d) {
        EXPECT_NEAR(static_cast<double>(total[d]), shares[d], 2) << b;
        EXPECT_NEAR(of_ranks[0][d], of_ranks[1][d], 1) << b;
      }
    }
  }
}

TEST(SamplerTest, PartsOfAMixtureTakeTurnsEvenly) {
  auto sampler = Make(
      {.num_samples = 5,
       .batch_size = 10,
       .mixture = MixtureOptions{.num_samples = {2, 3}, .num_rows = {6, 4}},
       .num_draws = 10});
  // Part 0 has samples 0 and 1. Three passes of it are one of the epoch.
  EXPECT_THAT(Collect(*sampler, 10, 0).indices,
              ElementsAre(2, 0, 3, 1, 0, 4, 1, 2, 0, 1));
  EXPECT_THAT(Collect(*sampler, 10, 1).indices,
              ElementsAre(3, 0, 4, 1, 0, 2, 1, 3, 0, 1));
}

TEST(SamplerTest, EqualPartsOfAMixtureHaveOrdersOfTheirOwn) {
  auto sampler = Make({.num_samples = 200,
                       .batch_size = 200,
                       .shuffle = true,
                       .mixture = MixtureOptions{.num_samples = {100, 100},
                                                 .num_rows = {100, 100},
                                                 .is_fixed_per_batch = true},
                       .num_draws = 200});
  std::vector<int64_t> first(200), second(200);
  sampler->Fill(0, 0, absl::MakeSpan(first));
  sampler->Fill(1, 0, absl::MakeSpan(second));
  int num_alike = 0;
  for (int i = 0; i < 100; ++i) {
    num_alike += first[i] == first[100 + i] - 100;
    num_alike += first[i] == second[i];
  }
  EXPECT_LT(num_alike, 20);
}

TEST(SamplerTest, AMixtureOfTheLastEpochsDoesNotOverflow) {
  SamplerOptions options = {
      .num_samples = 0xFFFFFFFF,
      .batch_size = 8,
      .shuffle = true,
      .mixture = MixtureOptions{.num_samples = {1, 0xFFFFFFFE},
                                .num_rows = {0xFFFFFFFC, 2}},
      .num_draws = 0xFFFFFFFE};
  for (const bool shuffle : {false, true}) {
    options.shuffle = shuffle;
    auto sampler = Make(options);
    std::vector<int64_t> indices(8);
    sampler->Fill(0xFFFFFFFF, sampler->batches_per_epoch() - 1,
                  absl::MakeSpan(indices));
    for (const int64_t index : indices) {
      EXPECT_GE(index, 0);
      EXPECT_LT(index, 0xFFFFFFFF);
    }
  }
}

}  // namespace
}  // namespace datasetd
