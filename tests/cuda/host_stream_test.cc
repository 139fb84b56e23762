#include "cuda/host/host_stream.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/host/host_thread_pool.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::IsOkAndHolds;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

// A launch that calls a function of the test, which the slot points to.
using Work = std::function<void()>;

bool CallWork(const AugmentProgram& program, const BatchTask& batch,
              HostPosition* position) {
  (*reinterpret_cast<const Work*>(batch.slot))();
  return true;
}

class HostStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostStream> MakeStream(std::function<void()> on_done = {}) {
    return std::make_unique<HostStream>(&pool_, &CallWork, std::move(on_done));
  }

  // REQUIRES: `work` lives until it has run.
  absl::Status Launch(HostStream& stream, const Work& work) {
    const BatchTask task = {
        .slot = reinterpret_cast<uint8_t*>(const_cast<Work*>(&work))};
    return stream.Augment(program_, {&task, 1});
  }

  HostThreadPool pool_{3};
  const HostProgram program_{AugmentProgram{}};
};

TEST_F(HostStreamTest, LaunchesOfOneStreamRunAtOnce) {
  std::latch meeting(3);
  const Work work = [&] { meeting.arrive_and_wait(); };
  auto stream = MakeStream();
  for (int i = 0; i < 3; ++i) ASSERT_THAT(Launch(*stream, work), IsOk());
  EXPECT_THAT(stream->Synchronize(), IsOk());
}

TEST_F(HostStreamTest, EventWaitsForAllEarlierLaunches) {
  std::latch may_end(1);
  std::latch later_ended(1);
  const Work slow = [&] { may_end.wait(); };
  const Work quick = [&] { later_ended.count_down(); };
  HostEvent before;
  HostEvent after_slow;
  HostEvent after_quick;
  auto stream = MakeStream();
  ASSERT_THAT(stream->Record(before), IsOk());
  ASSERT_THAT(Launch(*stream, slow), IsOk());
  ASSERT_THAT(stream->Record(after_slow), IsOk());
  ASSERT_THAT(Launch(*stream, quick), IsOk());
  ASSERT_THAT(stream->Record(after_quick), IsOk());
  later_ended.wait();
  EXPECT_THAT(before.IsDone(), IsOkAndHolds(true));
  EXPECT_THAT(after_slow.IsDone(), IsOkAndHolds(false));
  EXPECT_THAT(after_quick.IsDone(), IsOkAndHolds(false));
  may_end.count_down();
  ASSERT_THAT(stream->Synchronize(), IsOk());
  EXPECT_THAT(after_slow.IsDone(), IsOkAndHolds(true));
  EXPECT_THAT(after_quick.IsDone(), IsOkAndHolds(true));
}

TEST_F(HostStreamTest, CopyWaitsForEarlierLaunches) {
  std::latch may_end(1);
  std::atomic<bool> later_ran = false;
  const Work slow = [&] { may_end.wait(); };
  const Work later = [&] { later_ran = true; };
  const Work quick = [] {};
  const uint8_t from = 1;
  std::atomic<uint8_t> to = 0;
  auto stream = MakeStream();
  auto other = MakeStream();
  ASSERT_THAT(Launch(*stream, slow), IsOk());
  ASSERT_THAT(
      stream->CopyToHost(reinterpret_cast<uint8_t*>(&to), &from, sizeof(to)),
      IsOk());
  ASSERT_THAT(Launch(*stream, later), IsOk());
  // Two threads are free, and what may run comes before this.
  for (int i = 0; i < 1000; ++i) ASSERT_THAT(Launch(*other, quick), IsOk());
  ASSERT_THAT(other->Synchronize(), IsOk());
  EXPECT_EQ(to, 0);
  EXPECT_FALSE(later_ran);
  may_end.count_down();
  ASSERT_THAT(stream->Synchronize(), IsOk());
  EXPECT_EQ(to, 1);
  EXPECT_TRUE(later_ran);
}

TEST_F(HostStreamTest, LaunchWaitsForAnEarlierCopy) {
  // Long enough that a launch beside the copy would see its end unwritten.
  constexpr size_t kSizeBytes = size_t{32} << 20;
  const std::vector<uint8_t> from(kSizeBytes, 1);
  std::vector<uint8_t> to(kSizeBytes, 0);
  uint8_t seen[2] = {};
  const Work first = [&] { seen[0] = to.back(); };
  const Work second = [&] { seen[1] = to.back(); };
  auto stream = MakeStream();
  ASSERT_THAT(stream->CopyToDevice(to.data(), from.data(), kSizeBytes), IsOk());
  ASSERT_THAT(Launch(*stream, first), IsOk());
  ASSERT_THAT(Launch(*stream, second), IsOk());
  ASSERT_THAT(stream->Synchronize(), IsOk());
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[1], 1);
}

TEST_F(HostStreamTest, LaunchesAndCopiesAlternate) {
  // The copies take what the launches before them wrote, and feed the next.
  constexpr int kRounds = 200;
  uint8_t written_by_launches[2] = {};
  uint8_t copied[2] = {};
  std::atomic<int> num_wrong = 0;
  std::vector<Work> works;
  works.reserve(2 * kRounds);
  auto stream = MakeStream();
  for (int round = 1; round <= kRounds; ++round) {
    for (int half = 0; half < 2; ++half) {
      works.push_back([&, round, half] {
        const uint8_t previous = static_cast<uint8_t>(round - 1);
        if (copied[0] != previous || copied[1] != previous) ++num_wrong;
        written_by_launches[half] = static_cast<uint8_t>(round);
      });
      ASSERT_THAT(Launch(*stream, works.back()), IsOk());
    }
    ASSERT_THAT(stream->CopyToHost(copied, written_by_launches, 2), IsOk());
  }
  ASSERT_THAT(stream->Synchronize(), IsOk());
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(copied[0], static_cast<uint8_t>(kRounds));
}

TEST_F(HostStreamTest, FullRingIsAnErrorAndRecovers) {
  std::latch may_end(1);
  const Work slow = [&] { may_end.wait(); };
  const Work quick = [] {};
  auto stream = MakeStream();
  ASSERT_THAT(Launch(*stream, slow), IsOk());
  for (int i = 1; i < HostStream::kMaxPendingWork; ++i) {
    ASSERT_THAT(Launch(*stream, quick), IsOk()) << i;
  }
  HostEvent event;
  const auto is_full =
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1024"));
  EXPECT_THAT(Launch(*stream, quick), is_full);
  EXPECT_THAT(stream->Record(event), is_full);
  EXPECT_THAT(event.IsDone(), IsOkAndHolds(true));  // still unrecorded
  may_end.count_down();
  ASSERT_THAT(stream->Synchronize(), IsOk());
  // Once more around the ring.
  for (int i = 0; i < HostStream::kMaxPendingWork; ++i) {
    ASSERT_THAT(stream->Record(event), IsOk()) << i;
  }
  ASSERT_THAT(stream->Synchronize(), IsOk());
  EXPECT_THAT(event.IsDone(), IsOkAndHolds(true));
}

TEST_F(HostStreamTest, OnDoneIsCalledForEachEventAndNeverTwiceAtOnce) {
  constexpr int kRounds = 300;
  std::atomic<int> num_inside = 0;
  std::atomic<int> num_overlaps = 0;
  int num_calls = 0;  // unguarded: calls do not overlap
  const Work quick = [] {};
  HostEvent event;
  auto stream = MakeStream([&] {
    if (++num_inside != 1) ++num_overlaps;
    ++num_calls;
    --num_inside;
  });
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_THAT(Launch(*stream, quick), IsOk());
    ASSERT_THAT(stream->Record(event), IsOk());
  }
  stream.reset();
  EXPECT_EQ(num_calls, kRounds);
  EXPECT_EQ(num_overlaps, 0);
}

TEST_F(HostStreamTest, OnDoneIsCalledWithoutWorkBeforeTheEvent) {
  std::latch called(1);
  HostEvent event;
  auto stream = MakeStream([&] { called.count_down(); });
  ASSERT_THAT(stream->Record(event), IsOk());
  EXPECT_THAT(event.IsDone(), IsOkAndHolds(true));
  called.wait();
}

TEST_F(HostStreamTest, DestructionWaitsForWork) {
  std::atomic<int> num_runs = 0;
  const Work work = [&] { ++num_runs; };
  {
    auto stream = MakeStream();
    for (int i = 0; i < 500; ++i) ASSERT_THAT(Launch(*stream, work), IsOk());
  }
  EXPECT_EQ(num_runs, 500);
}

// A launch of `num_rows` rows, each of which is done when the test says so.
struct Rows {
  int num_rows = 0;
  std::atomic<int> num_allowed = 0;
  std::vector<int> done;
  std::atomic<int> num_parts = 0;
};

bool RunRowsOf(const AugmentProgram& program, const BatchTask& batch,
               HostPosition* position) {
  Rows& rows = *reinterpret_cast<Rows*>(batch.slot);
  ++rows.num_parts;
  for (; position->row < rows.num_rows; ++position->row) {
    while (position->row >= rows.num_allowed) {
      if (EndsAtSample()) return false;
    }
    rows.done.push_back(position->row);
  }
  return true;
}

TEST_F(HostStreamTest, AnInterruptedLaunchGoesOnWhereItWas) {
  HostThreadPool pool(1);
  Rows slow;
  slow.num_rows = 10;
  slow.num_allowed = 5;
  Rows quick;
  quick.num_rows = quick.num_allowed = 1;
  const auto launch = [&](HostStream& stream, Rows& rows) {
    const BatchTask task = {.slot = reinterpret_cast<uint8_t*>(&rows)};
    return stream.Augment(program_, {&task, 1});
  };
  HostStream slow_stream(&pool, &RunRowsOf, nullptr, {.uid = 1});
  HostStream quick_stream(&pool, &RunRowsOf, nullptr, {.uid = 2});
  ASSERT_THAT(launch(slow_stream, slow), IsOk());
  // The pool's only thread has the slow one, which waits for this test.
  ASSERT_THAT(launch(quick_stream, quick), IsOk());
  EXPECT_THAT(quick_stream.Synchronize(), IsOk());
  slow.num_allowed = 10;
  EXPECT_THAT(slow_stream.Synchronize(), IsOk());
  EXPECT_THAT(slow.done, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(quick.num_parts, 1);
}

TEST_F(HostStreamTest, CancelLeavesOutWhatRunsAndWhatWaits) {
  std::latch has_begun(1);
  std::atomic<bool> was_told = false;
  std::atomic<bool> has_run = false;
  const Work slow = [&] {
    has_begun.count_down();
    while (GoesOn()) {
    }
    was_told = true;
  };
  const Work later = [&] { has_run = true; };
  HostEvent event;
  auto stream = MakeStream();
  ASSERT_THAT(Launch(*stream, slow), IsOk());
  has_begun.wait();
  const uint8_t from = 1;
  uint8_t to = 0;
  ASSERT_THAT(stream->CopyToHost(&to, &from, 1), IsOk());
  ASSERT_THAT(Launch(*stream, later), IsOk());
  ASSERT_THAT(stream->Record(event), IsOk());
  stream->Cancel();
  EXPECT_THAT(stream->Synchronize(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  EXPECT_THAT(event.IsDone(), IsOkAndHolds(true));
  EXPECT_TRUE(was_told);
  EXPECT_FALSE(has_run);
  EXPECT_EQ(to, 0);
  // For good.
  ASSERT_THAT(Launch(*stream, later), IsOk());
  EXPECT_THAT(stream->Synchronize(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(has_run);
}

TEST_F(HostStreamTest, NoMoreLaunchesRunAtOnceThanThereIsScratchMemory) {
  std::vector<uint8_t> scratch(kTeamFlagBytes);
  AugmentProgram one_team = {};
  one_team.num_teams = 1;
  one_team.scratch = scratch.data();
  const HostProgram program(one_team);
  std::atomic<int> num_inside = 0;
  std::atomic<int> num_overlaps = 0;
  const Work work = [&] {
    if (++num_inside != 1) ++num_overlaps;
    --num_inside;
  };
  const BatchTask task = {
      .slot = reinterpret_cast<uint8_t*>(const_cast<Work*>(&work))};
  auto stream = MakeStream();
  for (int i = 0; i < 500; ++i) {
    ASSERT_THAT(stream->Augment(program, {&task, 1}), IsOk());
  }
  EXPECT_THAT(stream->Synchronize(), IsOk());
  EXPECT_EQ(num_overlaps, 0);
}

TEST_F(HostStreamTest, SlowStreamDoesNotStopAnother) {
  std::latch may_end(1);
  const Work slow = [&] { may_end.wait(); };
  const Work quick = [] {};
  auto slow_stream = MakeStream();
  auto quick_stream = MakeStream();
  // One thread of three stays free.
  ASSERT_THAT(Launch(*slow_stream, slow), IsOk());
  ASSERT_THAT(Launch(*slow_stream, slow), IsOk());
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(Launch(*quick_stream, quick), IsOk());
  }
  EXPECT_THAT(quick_stream->Synchronize(), IsOk());
  may_end.count_down();
}

}  // namespace
}  // namespace datasetd
