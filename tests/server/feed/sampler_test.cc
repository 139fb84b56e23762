#include "server/feed/sampler.h"

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
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

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

// N, world size, batch size (0: N + 1), drop_last, shuffle.
using Row = std::tuple<int64_t, int64_t, int64_t, bool, bool>;

class SamplerProductTest : public ::testing::TestWithParam<Row> {};

TEST_P(SamplerProductTest, EveryIndexOnceOverAllRanksPlusPadding) {
  const auto [n, world_size, batch_param, drop_last, shuffle] = GetParam();
  const int64_t batch_size = batch_param == 0 ? n + 1 : batch_param;
  constexpr uint64_t kSeed = 42;
  constexpr uint64_t kEpoch = 3;

  std::vector<RankEpoch> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    auto sampler = Make({.num_samples = n,
                         .batch_size = batch_size,
                         .shuffle = shuffle,
                         .drop_last = drop_last,
                         .seed = kSeed,
                         .rank = rank,
                         .world_size = world_size});
    ranks.push_back(Collect(*sampler, batch_size, kEpoch));
    EXPECT_EQ(sampler->batches_per_epoch(),
              static_cast<int64_t>(ranks.back().batch_sizes.size()));
    EXPECT_EQ(ranks.back().batch_sizes, ranks[0].batch_sizes);
  }

  // How many rows a rank should have, and in which batches.
  int64_t num_rows = 0;
  while (drop_last ? (num_rows + 1) * world_size <= n
                   : num_rows * world_size < n) {
    ++num_rows;
  }
  if (drop_last) num_rows -= num_rows % batch_size;
  ASSERT_EQ(static_cast<int64_t>(ranks[0].indices.size()), num_rows);
  for (size_t b = 0; b < ranks[0].batch_sizes.size(); ++b) {
    const bool is_last = b + 1 == ranks[0].batch_sizes.size();
    const int64_t rest = num_rows - static_cast<int64_t>(b) * batch_size;
    ASSERT_EQ(ranks[0].batch_sizes[b],
              is_last && !drop_last ? std::min(rest, batch_size) : batch_size);
  }

  // The rows of all ranks in turn are the global order, wrapped around; what
  // is wrapped, and nothing else, is called padding.
  const std::vector<int64_t> order = GlobalOrder(n, shuffle, kSeed, kEpoch);
  std::vector<int> num_seen(n, 0);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    std::vector<int64_t> padding_rows;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t position = row * world_size + rank;
      const int64_t index = ranks[rank].indices[row];
      ASSERT_EQ(index, order[position % n]);
      if (position >= n) {
        padding_rows.push_back(row);
      } else {
        ++num_seen[index];
      }
    }
    EXPECT_EQ(ranks[rank].padding_rows, padding_rows) << "rank " << rank;
  }
  const int64_t num_distinct = std::min(num_rows * world_size, n);
  EXPECT_EQ(std::count(num_seen.begin(), num_seen.end(), 1), num_distinct);
  EXPECT_EQ(std::count(num_seen.begin(), num_seen.end(), 0), n - num_distinct);
  EXPECT_TRUE(drop_last || num_distinct == n);
}

INSTANTIATE_TEST_SUITE_P(
    Product, SamplerProductTest,
    ::testing::Combine(::testing::Values<int64_t>(1, 2, 7, 1000, 50000, 65537,
                                                  131101),
                       ::testing::Values<int64_t>(1, 2, 3, 8),
                       ::testing::Values<int64_t>(1, 64, 500, 0),
                       ::testing::Bool(), ::testing::Bool()),
    [](const ::testing::TestParamInfo<Row>& info) {
      const int64_t batch = std::get<2>(info.param);
      return absl::StrCat("N", std::get<0>(info.param), "World",
                          std::get<1>(info.param), "Batch",
                          batch == 0 ? "All" : absl::StrCat(batch),
                          std::get<3>(info.param) ? "Drop" : "Keep",
                          std::get<4>(info.param) ? "Shuffle" : "InOrder");
    });

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

TEST(SamplerTest, DropLastWithABatchLargerThanTheShardIsAnEmptyEpoch) {
  auto sampler = Make(
      {.num_samples = 10, .batch_size = 6, .drop_last = true, .world_size = 2});
  EXPECT_EQ(sampler->batches_per_epoch(), 0);
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

TEST(SamplerTest, EveryBatchSizeCutsTheSameOrder) {
  for (int64_t n : {1000, 70000}) {
    const std::vector<int64_t> order = GlobalOrder(n, true, 4, 2);
    for (int64_t batch_size : {1, 3, 64, 999}) {
      auto sampler = Make({.num_samples = n,
                           .batch_size = batch_size,
                           .shuffle = true,
                           .seed = 4});
      EXPECT_EQ(Collect(*sampler, batch_size, 2).indices, order);
    }
  }
}

TEST(SamplerTest, AnEpochGoesOnWithOtherRanksAndBatches) {
  constexpr int64_t kNum = 103;
  constexpr uint64_t kEpoch = 2;
  const std::vector<int64_t> order =
      GlobalOrder(kNum, /*shuffle=*/true, /*seed=*/9, kEpoch);
  // 2 ranks took 3 batches of 5 each.
  constexpr uint64_t kFirst = 30;
  for (const int64_t world_size : {1, 3, 4, 80}) {
    std::vector<int> num_seen(kNum, 0);
    for (int64_t rank = 0; rank < world_size; ++rank) {
      auto sampler = Make({.num_samples = kNum,
                           .batch_size = 4,
                           .shuffle = true,
                           .seed = 9,
                           .rank = rank,
                           .world_size = world_size,
                           .first_position = kFirst});
      const RankEpoch rest = Collect(*sampler, 4, kEpoch);
      for (size_t row = 0; row < rest.indices.size(); ++row) {
        const uint64_t position = kFirst + rank + row * world_size;
        ASSERT_EQ(rest.indices[row], order[position % kNum]);
        const bool is_padding =
            std::find(rest.padding_rows.begin(), rest.padding_rows.end(),
                      row) != rest.padding_rows.end();
        ASSERT_EQ(is_padding, position >= kNum);
        if (!is_padding) ++num_seen[rest.indices[row]];
      }
    }
    for (int64_t place = 0; place < kNum; ++place) {
      ASSERT_EQ(num_seen[order[place]], place >= 30 ? 1 : 0);
    }
  }
}

TEST(SamplerTest, UnpaddedRanksGetEachPositionOnce) {
  for (const bool shuffle : {false, true}) {
    for (const int64_t n : {1, 2, 7, 1000, 65537}) {
      const std::vector<int64_t> order = GlobalOrder(n, shuffle, 9, 2);
      for (const int64_t world_size : {1, 2, 3, 8}) {
        // From the beginning, and the rest of an epoch that others began.
        for (const int64_t first : {int64_t{0}, n / 2, n - 1}) {
          std::vector<int64_t> seen(n, -1);
          for (int64_t rank = 0; rank < world_size; ++rank) {
            auto sampler =
                Make({.num_samples = n,
                      .batch_size = 64,
                      .shuffle = shuffle,
                      .unpadded = true,
                      .seed = 9,
                      .rank = rank,
                      .world_size = world_size,
                      .first_position = static_cast<uint64_t>(first)});
            const RankEpoch epoch = Collect(*sampler, 64, 2);
            EXPECT_TRUE(epoch.padding_rows.empty());
            EXPECT_EQ(sampler->batches_per_epoch(),
                      (static_cast<int64_t>(epoch.indices.size()) + 63) / 64);
            for (size_t row = 0; row < epoch.indices.size(); ++row) {
              const int64_t position = first + rank + row * world_size;
              ASSERT_LT(position, n);
              seen[position] = epoch.indices[row];
            }
          }
          ASSERT_TRUE(std::equal(seen.begin() + first, seen.end(),
                                 order.begin() + first));
        }
      }
    }
  }
}

TEST(SamplerTest, TheRestOfAnEpochDropsWhatIsNoWholeBatch) {
  auto sampler = Make({.num_samples = 20,
                       .batch_size = 4,
                       .drop_last = true,
                       .rank = 1,
                       .world_size = 2,
                       .first_position = 9});
  EXPECT_EQ(sampler->batches_per_epoch(), 1);
  EXPECT_THAT(Collect(*sampler, 4, 0).indices, ElementsAre(10, 12, 14, 16));
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

TEST(SamplerTest, ASubsetIsADatasetOfItsOwn) {
  auto subset = std::make_shared<std::vector<uint32_t>>();
  for (uint32_t i = 0; i < 101; ++i) subset->push_back(5000 - 3 * i);
  for (const bool shuffle : {false, true}) {
    for (const bool drop_last : {false, true}) {
      for (const int64_t world_size : {1, 3}) {
        for (int64_t rank = 0; rank < world_size; ++rank) {
          SamplerOptions options = {.num_samples = 101,
                                    .batch_size = 8,
                                    .shuffle = shuffle,
                                    .drop_last = drop_last,
                                    .seed = 9,
                                    .rank = rank,
                                    .world_size = world_size};
          RankEpoch places = Collect(*Make(options), 8, 4);
          options.subset = subset;
          const RankEpoch samples = Collect(*Make(options), 8, 4);
          for (int64_t& place : places.indices) place = (*subset)[place];
          EXPECT_EQ(samples.indices, places.indices);
          EXPECT_EQ(samples.batch_sizes, places.batch_sizes);
          EXPECT_EQ(samples.padding_rows, places.padding_rows);
        }
      }
    }
  }
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

TEST(SamplerTest, RanksShareTheDrawsByWeight) {
  constexpr int64_t kNum = 23;
  const auto weights = SomeWeights(kNum);
  std::vector<int64_t> draws(1000);
  weights->Draw(/*seed=*/9, /*epoch=*/4, 0, 1, absl::MakeSpan(draws));
  for (const bool drop_last : {false, true}) {
    for (const int64_t world_size : {1, 3, 4, 30}) {
      for (const uint64_t first : {0, 6}) {
        for (const uint64_t num_draws : {7, 23, 100}) {
          const int64_t left = static_cast<int64_t>(num_draws - first);
          int64_t num_rows = left / world_size;
          if (!drop_last && left % world_size != 0) ++num_rows;
          if (drop_last) num_rows -= num_rows % 4;
          for (int64_t rank = 0; rank < world_size; ++rank) {
            auto sampler = Make({.num_samples = kNum,
                                 .batch_size = 4,
                                 .drop_last = drop_last,
                                 .seed = 9,
                                 .rank = rank,
                                 .world_size = world_size,
                                 .first_position = first,
                                 .weights = weights,
                                 .num_draws = num_draws});
            const RankEpoch epoch = Collect(*sampler, 4, 4);
            ASSERT_EQ(static_cast<int64_t>(epoch.indices.size()), num_rows);
            EXPECT_THAT(epoch.padding_rows, ElementsAre());
            for (size_t row = 0; row < epoch.indices.size(); ++row) {
              const uint64_t position = first + rank + row * world_size;
              ASSERT_EQ(epoch.indices[row], draws[position]);
              if (row % 4 != 0) continue;
              ASSERT_EQ(sampler->FirstPosition(row / 4), position);
            }
          }
        }
      }
    }
  }
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

TEST(SamplerTest, RanksShareTheGroups) {
  constexpr int64_t kNum = 40;
  constexpr int64_t kGroup = 3;
  const auto groups = SomeGroups(kNum, kGroup);
  std::vector<int64_t> samples(3000);
  groups->Draw(/*seed=*/9, /*epoch=*/4, 0, 1, 0, absl::MakeSpan(samples));
  auto subset = std::make_shared<std::vector<uint32_t>>();
  for (uint32_t i = 0; i < kNum; ++i) subset->push_back(2 * i + 1);
  for (const bool drop_last : {false, true}) {
    for (const bool has_subset : {false, true}) {
      for (const int64_t world_size : {1, 3, 30}) {
        for (const uint64_t first : {0, 6}) {
          const uint64_t num_groups = 13;
          const int64_t left = static_cast<int64_t>(num_groups - first);
          int64_t num_own = left / world_size;
          if (!drop_last && left % world_size != 0) ++num_own;
          if (drop_last) num_own -= num_own % 4;
          for (int64_t rank = 0; rank < world_size; ++rank) {
            auto sampler = Make({.num_samples = kNum,
                                 .batch_size = 4 * kGroup,
                                 .drop_last = drop_last,
                                 .seed = 9,
                                 .rank = rank,
                                 .world_size = world_size,
                                 .first_position = first,
                                 .subset = has_subset ? subset : nullptr,
                                 .groups = groups,
                                 .num_groups = num_groups,
                                 .group_size = kGroup});
            const RankEpoch epoch = Collect(*sampler, 4 * kGroup, 4);
            ASSERT_EQ(static_cast<int64_t>(epoch.indices.size()),
                      num_own * kGroup);
            EXPECT_THAT(epoch.padding_rows, ElementsAre());
            for (size_t row = 0; row < epoch.indices.size(); ++row) {
              const uint64_t group = first + rank + row / kGroup * world_size;
              const int64_t sample = samples[group * kGroup + row % kGroup];
              ASSERT_EQ(epoch.indices[row],
                        has_subset ? 2 * sample + 1 : sample);
            }
            // A batch may be filled in parts.
            if (epoch.indices.size() < 5) continue;
            std::vector<int64_t> rows(4);
            sampler->FillRows(4, 0, 1, absl::MakeSpan(rows));
            EXPECT_TRUE(std::equal(rows.begin(), rows.end(),
                                   epoch.indices.begin() + 1));
          }
        }
      }
    }
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

TEST_P(MixtureTest, RanksDivideTheEpoch) {
  const auto sorted = [](std::vector<int64_t> samples) {
    std::sort(samples.begin(), samples.end());
    return samples;
  };
  SamplerOptions options = Options();
  const std::vector<int64_t> whole =
      sorted(Collect(*Make(options), 4, 3).indices);
  for (const int64_t world_size : {2, 8, 90}) {
    for (const bool unpadded : {false, true}) {
      options.world_size = world_size;
      options.unpadded = unpadded;
      std::vector<int64_t> all;
      for (options.rank = 0; options.rank < world_size; ++options.rank) {
        const RankEpoch rank = Collect(*Make(options), 4, 3);
        for (size_t i = 0; i < rank.indices.size(); ++i) {
          if (std::count(rank.padding_rows.begin(), rank.padding_rows.end(),
                         i) == 0) {
            all.push_back(rank.indices[i]);
          } else {
            EXPECT_FALSE(unpadded);
            EXPECT_TRUE(std::binary_search(whole.begin(), whole.end(),
                                           rank.indices[i]));
          }
        }
      }
      EXPECT_EQ(sorted(all), whole) << world_size << " " << unpadded;
      options.rank = 0;
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
