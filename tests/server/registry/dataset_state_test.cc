#include "server/registry/dataset_state.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using enum Stage;

constexpr StageEvent kEvents[] = {
    StageEvent::kScanBegun, StageEvent::kScanned,   StageEvent::kReserved,
    StageEvent::kReadBegun, StageEvent::kRead,      StageEvent::kFailed,
    StageEvent::kEnded,     StageEvent::kCancelled, StageEvent::kDeviceLost,
    StageEvent::kUnloaded,  StageEvent::kForced,    StageEvent::kFeedsEnded,
    StageEvent::kEvicted,   StageEvent::kForgotten};
static_assert(std::size(kEvents) == kNumStageEvents);

// A row for each stage, a letter for each event, in the order of kEvents: what
// the stage becomes, and '.' where the event cannot happen.
struct Row {
  Stage stage;
  char letter;
  const char* next;
};
constexpr Row kRows[] = {
    //                b c v d r f e x l u o w i g
    {kAsked, 'A', /*     */ "S....F.XX....."},
    {kScanning, 'S', /*  */ ".P...FGXX....."},
    {kPlanned, 'P', /*   */ "..Q....XX....."},
    {kQueued, 'Q', /*    */ "...R...XX....."},
    {kReading, 'R', /*   */ "....YFGXX....."},
    {kEnding, 'X', /*    */ ".....FGXX....."},
    {kReady, 'Y', /*     */ "........FGU.G."},
    {kFailed, 'F', /*    */ ".........GU..G"},
    {kUnloading, 'U', /* */ "..........UG.."},
    {kGone, 'G', /*      */ ".............."},
};
static_assert(std::size(kRows) == kNumStages);

bool IsOfAWorker(Stage stage) {
  return stage == kScanning || stage == kReading;
}
bool IsLoading(Stage stage) { return StateOf(stage) == DatasetState::kLoading; }

TEST(DatasetStateTest, EveryEventInEveryStage) {
  std::map<char, Stage> stages;
  for (const Row& row : kRows) stages[row.letter] = row.stage;
  size_t num_changes = 0;
  for (const Row& row : kRows) {
    ASSERT_EQ(std::string(row.next).size(), std::size(kEvents));
    for (size_t i = 0; i < std::size(kEvents); ++i) {
      const std::optional<StageChange> change = ChangeOf(row.stage, kEvents[i]);
      const char letter = row.next[i];
      ASSERT_EQ(change.has_value(), letter != '.') << row.letter << i;
      if (!change.has_value()) continue;
      ++num_changes;
      EXPECT_EQ(change->to, stages.at(letter)) << row.letter << i;
    }
  }
  // No row of the table is hidden by another.
  EXPECT_EQ(num_changes, StageChanges().size());
}

// What must hold of each change, whatever it is.
TEST(DatasetStateTest, NothingIsLostByAChange) {
  for (const StageChange& change : StageChanges()) {
    const auto has = [&](StageEffect effect) {
      return (change.effects & effect) != 0;
    };
    SCOPED_TRACE(::testing::Message() << static_cast<int>(change.from) << " by "
                                      << static_cast<int>(change.event));
    // What is gone is in no table, and only that.
    EXPECT_EQ(has(kForget), change.to == kGone);
    // A worker is told, and what waits is taken out of its queue.
    const bool is_cancelled = change.to == kEnding && change.from != kEnding;
    EXPECT_EQ(has(kStopWork), is_cancelled && IsOfAWorker(change.from));
    EXPECT_EQ(has(kDropWork), is_cancelled && !IsOfAWorker(change.from));
    // A load never ends behind a worker's back.
    if (IsOfAWorker(change.from) && !IsLoading(change.to)) {
      EXPECT_THAT(change.event,
                  ::testing::AnyOf(StageEvent::kRead, StageEvent::kFailed,
                                   StageEvent::kEnded));
    }
    // Samples go when no feed reads them any more.
    const bool had_samples = change.from == kReady || change.from == kFailed ||
                             change.from == kUnloading;
    EXPECT_EQ(has(kFreeMemory), had_samples && change.to == kGone &&
                                    change.event != StageEvent::kForgotten);
    // Nobody waits for the files of what is not there.
    const bool could_be_joined = change.from == kQueued ||
                                 change.from == kReading ||
                                 change.from == kReady;
    const bool can_be_joined =
        change.to == kQueued || change.to == kReading || change.to == kReady;
    EXPECT_EQ(has(kEndChecks), could_be_joined && !can_be_joined);
  }
}

TEST(DatasetStateTest, EveryStageIsReachedAndLeft) {
  std::set<Stage> reached = {kAsked};
  for (int i = 0; i < kNumStages; ++i) {
    for (const StageChange& change : StageChanges()) {
      if (reached.contains(change.from)) reached.insert(change.to);
    }
  }
  EXPECT_EQ(reached.size(), static_cast<size_t>(kNumStages));
  std::set<Stage> ends = {kGone};
  for (int i = 0; i < kNumStages; ++i) {
    for (const StageChange& change : StageChanges()) {
      if (ends.contains(change.to)) ends.insert(change.from);
    }
  }
  EXPECT_EQ(ends, reached);
}

// Each load can be cancelled, and loses its device, in every stage.
TEST(DatasetStateTest, ALoadCanAlwaysBeEnded) {
  for (int i = 0; i < kNumStages; ++i) {
    const Stage stage = static_cast<Stage>(i);
    for (const StageEvent event :
         {StageEvent::kCancelled, StageEvent::kDeviceLost}) {
      if (!IsLoading(stage)) continue;
      const std::optional<StageChange> change = ChangeOf(stage, event);
      ASSERT_TRUE(change.has_value()) << i;
      EXPECT_EQ(change->to, kEnding) << i;
    }
  }
}

}  // namespace
}  // namespace datasetd
