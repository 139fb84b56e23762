#include "server/order/client_order.h"

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<int64_t>;
using Sizes = std::vector<uint32_t>;
using enum absl::StatusCode;

constexpr int64_t kBatchSize = 4;
constexpr uint32_t kCapacity = 5;

ClientOrder::Options SomeOptions() {
  ClientOrder::Options options;
  options.num_samples = 100;
  options.batch_size = kBatchSize;
  options.capacity = kCapacity;
  return options;
}

absl::Status Append(ClientOrder& order, FeedPosition start, uint64_t first_row,
                    const Sizes& sizes, const Indices& indices,
                    uint64_t generation = 0) {
  return order.Append({.generation = generation,
                       .start = start,
                       .first_row = first_row,
                       .batch_sizes = sizes,
                       .indices = indices});
}

// The rows of the next batch; empty if there is none.
Indices Take(ClientOrder& order, uint64_t generation = 0,
             ClientOrder::Batch* batch = nullptr) {
  ClientOrder::Batch taken;
  Indices rows(kBatchSize, -1);
  if (!order.Take(generation, absl::MakeSpan(rows), &taken)) return {};
  rows.resize(taken.num_samples);
  if (batch != nullptr) *batch = taken;
  return rows;
}

TEST(ClientOrderTest, BatchesOfGroups) {
  ClientOrder::Options options = SomeOptions();
  options.group_size = 2;
  ClientOrder order(options);
  EXPECT_THAT(Append(order, {0, 0}, 0, {4, 2}, {1, 2, 3, 4, 5, 6}), IsOk());
  EXPECT_THAT(
      Append(order, {0, 2}, 6, {3}, {1, 2, 3}),
      StatusIs(kInvalidArgument, HasSubstr("batch_sizes[0]: 3 rows are no "
                                           "groups of 2")));
}

TEST(ClientOrderTest, GivesWhatWasSentInOrder) {
  ClientOrder order(SomeOptions());
  EXPECT_FALSE(order.HasNext());
  EXPECT_THAT(Take(order), IsEmpty());
  EXPECT_THAT(Append(order, {0, 0}, 0, {3, 1, 4}, {7, 7, 99, 0, 1, 2, 3, 4}),
              IsOk());
  EXPECT_THAT(Append(order, {0, 3}, 8, {2}, {50, 49}), IsOk());
  ClientOrder::Batch batch;
  EXPECT_THAT(Take(order, 0, &batch), ElementsAre(7, 7, 99));
  EXPECT_EQ(batch.first_row, 0);
  EXPECT_THAT(Take(order), ElementsAre(0));
  EXPECT_TRUE(order.HasNext());
  EXPECT_THAT(Take(order, 0, &batch), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(batch.position.batch, 2);
  EXPECT_EQ(batch.first_row, 4);
  EXPECT_THAT(Take(order, 0, &batch), ElementsAre(50, 49));
  EXPECT_EQ(batch.position.epoch, 0);
  EXPECT_EQ(batch.position.batch, 3);
  EXPECT_FALSE(order.HasNext());
}

TEST(ClientOrderTest, GoesRoundAndRound) {
  ClientOrder order(SomeOptions());
  uint64_t sent = 0;
  for (uint64_t taken = 0; taken < 100; ++taken) {
    while (sent < taken + kCapacity) {
      const int64_t index = static_cast<int64_t>(sent % 100);
      ASSERT_THAT(Append(order, {0, sent}, sent, {1}, {index}), IsOk());
      ++sent;
    }
    ASSERT_THAT(Take(order), ElementsAre(static_cast<int64_t>(taken % 100)));
  }
}

TEST(ClientOrderTest, RowsAreThoseOfAllRanks) {
  ClientOrder::Options options = SomeOptions();
  options.rank = 2;
  options.world_size = 3;
  ClientOrder order(options);
  ASSERT_THAT(Append(order, {0, 0}, 0, {2, 1}, {1, 2, 3}), IsOk());
  ClientOrder::Batch batch;
  Take(order, 0, &batch);
  EXPECT_EQ(batch.first_row, 2);
  Take(order, 0, &batch);
  EXPECT_EQ(batch.first_row, 2 + 2 * 3);
}

TEST(ClientOrderTest, NothingOfARefusedBlockIsTaken) {
  ClientOrder order(SomeOptions());
  ASSERT_THAT(Append(order, {0, 0}, 0, {1}, {5}), IsOk());
  EXPECT_THAT(Append(order, {0, 1}, 1, {2}, {1, 100}),
              StatusIs(kOutOfRange, AllOf(HasSubstr("indices[1]: 100"),
                                          HasSubstr("has 100 samples"))));
  EXPECT_THAT(Append(order, {0, 1}, 1, {2}, {-1, 1}),
              StatusIs(kOutOfRange, HasSubstr("indices[0]: -1")));
  EXPECT_THAT(Append(order, {0, 1}, 1, {1}, {INT64_MIN}),
              StatusIs(kOutOfRange));
  EXPECT_THAT(Append(order, {0, 1}, 1, {1}, {INT64_MAX}),
              StatusIs(kOutOfRange));
  EXPECT_THAT(Append(order, {0, 1}, 1, {}, {}),
              StatusIs(kInvalidArgument, HasSubstr("has no batch")));
  EXPECT_THAT(Append(order, {0, 1}, 1, {0}, {}),
              StatusIs(kInvalidArgument, HasSubstr("batch_sizes[0]: 0")));
  EXPECT_THAT(Append(order, {0, 1}, 1, {5}, {1, 1, 1, 1, 1}),
              StatusIs(kInvalidArgument, HasSubstr("1 to 4")));
  EXPECT_THAT(Append(order, {0, 1}, 1, {0xFFFFFFFF}, {1}),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(Append(order, {0, 1}, 1, {2}, {1}),
              StatusIs(kInvalidArgument, HasSubstr("sum up to 2")));
  EXPECT_THAT(Append(order, {0, 1}, 1, {1}, {1, 2}),
              StatusIs(kInvalidArgument, HasSubstr("sum up to 1")));
  EXPECT_THAT(Take(order), ElementsAre(5));
  EXPECT_FALSE(order.HasNext());
}

TEST(ClientOrderTest, ABlockGoesOnWhereTheLastOneEnded) {
  ClientOrder::Options options = SomeOptions();
  options.start = {3, 7};
  ClientOrder order(options);
  EXPECT_THAT(
      Append(order, {3, 6}, 0, {1}, {1}),
      StatusIs(kInvalidArgument, HasSubstr("batch 7 of epoch 3 is next")));
  EXPECT_THAT(Append(order, {3, 7}, 0, {1, 1}, {1, 1}), IsOk());
  EXPECT_THAT(Append(order, {3, 8}, 0, {1}, {1}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Append(order, {4, 1}, 0, {1}, {1}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Append(order, {2, 0}, 0, {1}, {1}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Append(order, {4, 0}, 0, {1}, {1}), IsOk());
  EXPECT_THAT(Append(order, {9, 0}, 0, {1}, {1}), IsOk());
}

TEST(ClientOrderTest, NumbersOutOfRange) {
  ClientOrder order(SomeOptions());
  const uint64_t k2To32 = uint64_t{1} << 32;
  EXPECT_THAT(Append(order, {k2To32, 0}, 0, {1}, {1}, 1),
              StatusIs(kInvalidArgument, HasSubstr("start")));
  EXPECT_THAT(Append(order, {0, k2To32}, 0, {1}, {1}, 1),
              StatusIs(kInvalidArgument, HasSubstr("start")));
  EXPECT_THAT(Append(order, {0, 0}, k2To32, {1}, {1}),
              StatusIs(kInvalidArgument, HasSubstr("first_row")));
  EXPECT_THAT(Append(order, {0, 0}, UINT64_MAX, {1}, {1}),
              StatusIs(kInvalidArgument, HasSubstr("first_row")));
  EXPECT_THAT(Append(order, {0, 0}, k2To32 - 1, {2}, {1, 2}),
              StatusIs(kInvalidArgument, HasSubstr("first_row")));
  EXPECT_THAT(
      Append(order, {0xFFFFFFFF, 0xFFFFFFFF}, k2To32 - 1, {1}, {1}, UINT64_MAX),
      IsOk());
  EXPECT_EQ(order.generation(), UINT64_MAX);

  ClientOrder::Options options = SomeOptions();
  options.rank = 0xFFFFFFFE;
  options.world_size = 0xFFFFFFFF;
  ClientOrder last_rank(options);
  EXPECT_THAT(Append(last_rank, {0, 0}, 0, {1}, {1}), IsOk());
  EXPECT_THAT(Append(last_rank, {0, 1}, 1, {1}, {1}),
              StatusIs(kInvalidArgument, HasSubstr("first_row")));
}

TEST(ClientOrderTest, AFloodIsRefused) {
  ClientOrder order(SomeOptions());
  EXPECT_THAT(Append(order, {0, 0}, 0, Sizes(6, 1), Indices(6, 1)),
              StatusIs(kResourceExhausted, HasSubstr("at most 5")));
  EXPECT_THAT(Append(order, {0, 0}, 0, Sizes(4, 1), {1, 2, 3, 4}), IsOk());
  EXPECT_THAT(Append(order, {0, 4}, 4, {1, 1}, {5, 6}),
              StatusIs(kResourceExhausted, AllOf(HasSubstr("4 batches wait"),
                                                 HasSubstr("2 more"))));
  EXPECT_THAT(Take(order), ElementsAre(1));
  EXPECT_THAT(Append(order, {0, 4}, 4, {1, 1}, {5, 6}), IsOk());
  for (int64_t index = 2; index <= 6; ++index) {
    EXPECT_THAT(Take(order), ElementsAre(index));
  }
}

TEST(ClientOrderTest, ASeekDropsWhatWaits) {
  ClientOrder order(SomeOptions());
  ASSERT_THAT(Append(order, {0, 0}, 0, Sizes(5, 1), Indices(5, 1)), IsOk());
  ASSERT_THAT(Take(order), ElementsAre(1));
  // Also where it would not fit behind them.
  EXPECT_THAT(Append(order, {2, 9}, 70, {1, 2}, {8, 9, 10}, 4), IsOk());
  EXPECT_EQ(order.generation(), 4);
  EXPECT_THAT(Take(order, 0), IsEmpty());
  ClientOrder::Batch batch;
  EXPECT_THAT(Take(order, 4, &batch), ElementsAre(8));
  EXPECT_EQ(batch.position.epoch, 2);
  EXPECT_EQ(batch.position.batch, 9);
  EXPECT_EQ(batch.first_row, 70);
  // A block that was under way before the seek comes too late.
  EXPECT_THAT(Append(order, {0, 5}, 5, {1}, {1}, 0),
              StatusIs(kFailedPrecondition,
                       AllOf(HasSubstr("is of 0"), HasSubstr("to 4"))));
  EXPECT_THAT(Take(order, 4), ElementsAre(9, 10));
}

TEST(ClientOrderTest, ARefusedSeekDropsNothing) {
  ClientOrder order(SomeOptions());
  ASSERT_THAT(Append(order, {0, 0}, 0, {1}, {42}), IsOk());
  EXPECT_THAT(Append(order, {0, 0}, 0, {1}, {100}, 1), StatusIs(kOutOfRange));
  EXPECT_EQ(order.generation(), 0);
  EXPECT_THAT(Take(order), ElementsAre(42));
}

TEST(ClientOrderTest, SenderAndProducerAtOnce) {
  constexpr uint64_t kNumBatches = 20000;
  ClientOrder order(SomeOptions());
  std::thread sender([&order] {
    for (uint64_t sent = 0; sent < kNumBatches;) {
      const uint32_t size = 1 + sent % kBatchSize;
      const Indices rows(size, static_cast<int64_t>(sent % 100));
      const absl::Status status = Append(order, {0, sent}, 0, {size}, rows);
      if (status.ok()) {
        ++sent;
      } else {
        ASSERT_THAT(status, StatusIs(kResourceExhausted));
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t taken = 0; taken < kNumBatches;) {
    ClientOrder::Batch batch;
    const Indices rows = Take(order, 0, &batch);
    if (rows.empty()) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(batch.position.batch, taken);
    ASSERT_EQ(rows, Indices(1 + taken % kBatchSize,
                            static_cast<int64_t>(taken % 100)));
    ++taken;
  }
  sender.join();
  EXPECT_FALSE(order.HasNext());
}

}  // namespace
}  // namespace datasetd
