#include "client/feed/feed_cursor.h"

#include "client/connection/error_detail.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint64_t kLastEpoch = 0xFFFFFFFF;

TEST(FeedCursorTest, EpochsFollowEachOther) {
  FeedCursor cursor(
      {.batches_per_epoch = 2, .start_epoch = 3, .start_batch = 1});
  EXPECT_TRUE(cursor.IsDue(3, 1));
  EXPECT_FALSE(cursor.IsDue(3, 0));
  EXPECT_FALSE(cursor.IsDue(4, 0));
  cursor.Pass(3, 1);
  EXPECT_TRUE(cursor.IsDue(4, 0));
  cursor.Pass(4, 0);
  EXPECT_EQ(cursor.epoch(), 4);
  EXPECT_EQ(cursor.batch(), 1);
  EXPECT_EQ(cursor.generation(), 0);
}

TEST(FeedCursorTest, ASeekBeginsAGenerationUnlessItIsDueAnyway) {
  FeedCursor cursor({.batches_per_epoch = 2});
  auto is_to_tell = cursor.Seek(0, 0);
  ASSERT_THAT(is_to_tell, IsOk());
  EXPECT_FALSE(*is_to_tell);
  EXPECT_EQ(cursor.generation(), 0);
  is_to_tell = cursor.Seek(kLastEpoch, 1);
  ASSERT_THAT(is_to_tell, IsOk());
  EXPECT_TRUE(*is_to_tell);
  EXPECT_EQ(cursor.generation(), 1);
  EXPECT_TRUE(cursor.IsDue(kLastEpoch, 1));
}

TEST(FeedCursorTest, ASeekToWhatIsDueBringsAChangedOrder) {
  FeedCursor cursor({.batches_per_epoch = 2});
  cursor.ChangeOrder();
  for (const bool is_told : {true, false}) {
    const auto is_to_tell = cursor.Seek(0, 0);
    ASSERT_THAT(is_to_tell, IsOk());
    EXPECT_EQ(*is_to_tell, is_told);
    EXPECT_EQ(cursor.generation(), 1);
  }
}

TEST(FeedCursorTest, ASeekToWhatIsNotThereMovesNothing) {
  FeedCursor cursor({.batches_per_epoch = 2});
  EXPECT_THAT(cursor.Seek(kLastEpoch + 1, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("epochs are 0 to 4294967295")));
  EXPECT_THAT(cursor.Seek(0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("an epoch of this feed has 2 batches")));
  EXPECT_TRUE(cursor.IsDue(0, 0));
  EXPECT_EQ(cursor.generation(), 0);
}

TEST(FeedCursorTest, EpochsWithoutBatchesHaveNothingToWaitFor) {
  const FeedCursor empty({.batches_per_epoch = 0});
  const absl::Status status = empty.CheckMoreComes();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("drop_last")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kNoBatches);
  const FeedCursor other({.batches_per_epoch = 1});
  EXPECT_THAT(other.CheckMoreComes(), IsOk());
}

TEST(FeedCursorTest, TheDaemonsOrderEndsWithTheLastEpoch) {
  FeedCursor cursor({.batches_per_epoch = 1, .start_epoch = kLastEpoch});
  EXPECT_THAT(cursor.CheckMoreComes(), IsOk());
  cursor.Pass(kLastEpoch, 0);
  EXPECT_THAT(cursor.CheckMoreComes(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("epochs are 0 to 4294967295")));
  ASSERT_THAT(cursor.Seek(kLastEpoch, 0), IsOk());
  EXPECT_THAT(cursor.CheckMoreComes(), IsOk());
}

TEST(FeedCursorTest, AClientsOrderEndsWithWhatWasSent) {
  FeedCursor cursor({.has_client_order = true});
  EXPECT_FALSE(cursor.IsDue(0, 0));
  EXPECT_THAT(cursor.CheckMoreComes(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("send more indices")));
  cursor.AddSent(2);
  EXPECT_THAT(cursor.CheckMoreComes(), IsOk());
  EXPECT_TRUE(cursor.IsDue(0, 0));
  cursor.Pass(0, 0);
  // Where the epoch ends, the client alone knows.
  EXPECT_TRUE(cursor.IsDue(0, 1));
  EXPECT_TRUE(cursor.IsDue(5, 0));
  EXPECT_FALSE(cursor.IsDue(5, 1));
  EXPECT_FALSE(cursor.IsDue(0, 2));
  cursor.Pass(5, 0);
  EXPECT_EQ(cursor.num_sent(), 0);
  EXPECT_FALSE(cursor.IsDue(5, 1));
}

TEST(FeedCursorTest, ASeekGivesUpWhatWasSent) {
  FeedCursor cursor({.has_client_order = true});
  cursor.AddSent(2);
  // It is due, and yet what was sent is not wanted.
  auto is_to_tell = cursor.Seek(0, 0);
  ASSERT_THAT(is_to_tell, IsOk());
  EXPECT_FALSE(*is_to_tell);  // the next block says it
  EXPECT_EQ(cursor.generation(), 1);
  EXPECT_EQ(cursor.num_sent(), 0);
  ASSERT_THAT(cursor.Seek(0, 0), IsOk());
  EXPECT_EQ(cursor.generation(), 1);
}

TEST(FeedCursorTest, AnOrderThatIsLostIsFoundBySeeking) {
  FeedCursor cursor({.has_client_order = true});
  EXPECT_THAT(cursor.CheckOrder(), IsOk());
  cursor.LoseOrder();
  EXPECT_THAT(cursor.CheckOrder(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("seek to where the order continues")));
  ASSERT_THAT(cursor.Seek(0, 0), IsOk());
  EXPECT_EQ(cursor.generation(), 1);
  EXPECT_THAT(cursor.CheckOrder(), IsOk());
}

}  // namespace
}  // namespace datasetd::client
