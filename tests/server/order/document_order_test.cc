#include "server/order/document_order.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DocumentPlan DocumentsOf(const std::vector<int64_t>& starts, int64_t num_steps,
                         int64_t length, bool shuffle = false) {
  auto table = std::make_shared<DocumentTable>(DocumentTable::Options{
      .num_documents = static_cast<int64_t>(starts.size()),
      .num_steps = num_steps,
      .dataset = "a"});
  EXPECT_THAT(table->Append(starts), IsOk());
  EXPECT_THAT(table->Finish(), IsOk());
  return {.table = table,
          .num_documents = table->num_documents(),
          .num_steps = num_steps,
          .length = length,
          .shuffle = shuffle,
          .has_sequences = true};
}

// The entries of a row, once the order is there.
std::vector<int64_t> EntriesOf(DocumentOrder& order, const DocumentPlan& plan,
                               uint64_t epoch, int64_t row) {
  int64_t nanoseconds = int64_t{1} << 40;
  EXPECT_TRUE(order.Prepare(epoch, &nanoseconds));
  std::vector<int64_t> entries(plan.row_entries(), -7);
  std::vector<int64_t> rows = {row};
  order.Fill(epoch, absl::MakeSpan(rows), entries.data());
  EXPECT_EQ(rows[0], EntryStep(entries[0]));
  return entries;
}

TEST(DocumentTableTest, FirstStepsOfAClientAreChecked) {
  struct {
    std::vector<int64_t> starts;
    int64_t num_steps;
    absl::StatusCode code;
    const char* words;
  } const kRows[] = {
      {{1}, 9, absl::StatusCode::kInvalidArgument, "[0] begins at 1"},
      {{0, 4, 4}, 9, absl::StatusCode::kInvalidArgument, "one before at 4"},
      {{0, 4, 3}, 9, absl::StatusCode::kInvalidArgument, "must ascend from 0"},
      {{0, 9}, 9, absl::StatusCode::kOutOfRange, "[1] begins at 9"},
      {{0, -1}, 9, absl::StatusCode::kOutOfRange, "the steps 0..8"},
      {{0, (1 << 23) + 1},
       1 << 24,
       absl::StatusCode::kInvalidArgument,
       "step 0 of dataset 'a' has 8388609 steps"},
      {{0, 1},
       (1 << 23) + 2,
       absl::StatusCode::kInvalidArgument,
       "begins at step 1"},
  };
  for (const auto& row : kRows) {
    DocumentTable table(
        {.num_documents = static_cast<int64_t>(row.starts.size()),
         .num_steps = row.num_steps,
         .dataset = "a"});
    absl::Status status = table.Append(row.starts);
    if (status.ok()) status = table.Finish();
    EXPECT_THAT(status, StatusIs(row.code, HasSubstr(row.words)));
  }
}

TEST(DocumentOrderTest, RowsHaveStepsPositionsAndSequences) {
  // Documents [0, 3), [3, 4), [4, 9).
  const DocumentPlan plan = DocumentsOf({0, 3, 4}, 9, 4);
  DocumentOrder order(plan, 1);
  EXPECT_EQ(plan.num_rows(), 3);
  EXPECT_THAT(EntriesOf(order, plan, 0, 0),
              ElementsAre(MakeEntry(0, 0), MakeEntry(1, 1), MakeEntry(2, 2),
                          MakeEntry(3, 0), MakeEntry(4, 0), 0, 3, 4, 4, 4));
  EXPECT_THAT(EntriesOf(order, plan, 0, 1),
              ElementsAre(MakeEntry(4, 0), MakeEntry(5, 1), MakeEntry(6, 2),
                          MakeEntry(7, 3), MakeEntry(8, 4), 0, 4, 4, 4, 4));
  EXPECT_THAT(EntriesOf(order, plan, 0, 2),
              ElementsAre(MakeEntry(8, 4), kNoEntry, kNoEntry, kNoEntry,
                          kNoEntry, 0, 1, 1, 1, 1));
}

// Other feeds wait while a piece is made.
TEST(DocumentOrderTest, AnOrderIsMadeInPieces) {
  std::vector<int64_t> starts(10'000);
  std::iota(starts.begin(), starts.end(), int64_t{0});
  const DocumentPlan plan = DocumentsOf(starts, 10'000, 16, /*shuffle=*/true);
  DocumentOrder whole(plan, 1);
  DocumentOrder order(plan, 1);
  int num_pieces = 0;
  int64_t left = order.NanosecondsLeft(7);
  for (bool is_complete = false; !is_complete; ++num_pieces) {
    int64_t nanoseconds = left / 10;
    is_complete = order.Prepare(7, &nanoseconds);
    EXPECT_LE(nanoseconds, left / 20);
  }
  EXPECT_GE(num_pieces, 10);
  EXPECT_LE(num_pieces, 14);
  EXPECT_EQ(order.NanosecondsLeft(7), 0);
  EXPECT_EQ(EntriesOf(order, plan, 7, 5), EntriesOf(whole, plan, 7, 5));
}

TEST(DocumentOrderTest, AnEpochHasEachStepOnceWhicheverWasMadeBefore) {
  const std::vector<int64_t> starts = {0, 3, 4, 11, 30, 31, 40, 55};
  const DocumentPlan plan = DocumentsOf(starts, 61, 7, /*shuffle=*/true);
  DocumentOrder order(plan, 1);
  std::set<std::vector<int64_t>> orders;
  for (const uint64_t epoch : {0, 1, 0, 5, 4, 1, 0, 2, 3}) {
    int64_t nanoseconds = 1;
    order.Prepare(epoch + 9, &nanoseconds);  // in part
    std::vector<int64_t> steps;
    std::vector<int64_t> firsts;
    for (int64_t row = 0; row < plan.num_rows(); ++row) {
      const std::vector<int64_t> entries = EntriesOf(order, plan, epoch, row);
      for (int64_t i = 0; i < plan.length; ++i) {
        if (entries[i] == kNoEntry) continue;
        steps.push_back(EntryStep(entries[i]));
        if (EntryPosition(entries[i]) == 0) firsts.push_back(steps.back());
      }
    }
    orders.insert(firsts);
    std::sort(steps.begin(), steps.end());
    std::vector<int64_t> all(61);
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(steps, all) << epoch;
    std::sort(firsts.begin(), firsts.end());
    EXPECT_EQ(firsts, starts);
  }
  EXPECT_EQ(orders.size(), 6);
}

TEST(DocumentOrderTest, EachOrderIsEquallyLikely) {
  const DocumentPlan plan = DocumentsOf({0, 1, 2}, 3, 3, /*shuffle=*/true);
  DocumentOrder order(plan, 1);
  std::vector<int> counts(27);
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const std::vector<int64_t> entries = EntriesOf(order, plan, epoch, 0);
    ++counts[9 * EntryStep(entries[0]) + 3 * EntryStep(entries[1]) +
             EntryStep(entries[2])];
  }
  counts.erase(std::remove(counts.begin(), counts.end(), 0), counts.end());
  ASSERT_EQ(counts.size(), 6);
  for (const int count : counts) EXPECT_NEAR(count, 1000, 6 * 29);
}

}  // namespace
}  // namespace datasetd
