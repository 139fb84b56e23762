#include "server/cache/cache_index.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOkAndHolds;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kAnn = 1001;
constexpr uint32_t kBob = 1002;
constexpr uint32_t kCyd = 1003;
constexpr uint32_t kDaemon = 900;
constexpr int64_t kTotal = 100 << 20;
constexpr int64_t kMib = 1 << 20;

CacheIndex MakeIndex(std::optional<int64_t> user_bytes = std::nullopt) {
  CacheIndex index;
  index.SetLimits(
      {.total_bytes = kTotal, .user_bytes = user_bytes, .daemon_uid = kDaemon});
  return index;
}

TEST(CacheIndexTest, TheLeastRecentlyUsedOfTheUserGoesFirst) {
  CacheIndex index = MakeIndex();
  index.Add("a", kAnn, 20 * kMib);
  index.Add("b", kBob, 20 * kMib);
  index.Add("c", kBob, 20 * kMib);
  index.Use("b");
  EXPECT_EQ(index.used_bytes(), 60 * kMib);
  EXPECT_THAT(index.PlanRoom(kBob, 10 * kMib), IsOkAndHolds(IsEmpty()));
  // Over half.
  EXPECT_THAT(index.PlanRoom(kBob, 20 * kMib), IsOkAndHolds(ElementsAre("c")));
  EXPECT_THAT(index.PlanRoom(kBob, 40 * kMib),
              IsOkAndHolds(ElementsAre("c", "b")));
  EXPECT_EQ(index.Remove("c"), kBob);
  EXPECT_FALSE(index.Contains("c"));
  EXPECT_EQ(index.used_bytes(), 40 * kMib);
  EXPECT_EQ(index.num_entries(), 2);
}

TEST(CacheIndexTest, WhoHasTheMostGivesWayWhenItIsFull) {
  CacheIndex index = MakeIndex();
  index.Add("root", 0, 60 * kMib);
  index.Add("old", kAnn, 10 * kMib);
  index.Add("new", kAnn, 10 * kMib);
  index.Add("b", kBob, 20 * kMib);
  // A user without entries gets in, and a small one stays.
  EXPECT_THAT(index.PlanRoom(kCyd, 10 * kMib),
              IsOkAndHolds(ElementsAre("root")));
  index.Remove("root");
  index.Add("b2", kBob, 30 * kMib);
  index.Add("c", kCyd, 30 * kMib);
  EXPECT_THAT(index.PlanRoom(kAnn, 5 * kMib), IsOkAndHolds(ElementsAre("b")));
  // If several users have the most, the one who stores gives way.
  index.Remove("b");
  index.Add("root", 0, 20 * kMib);
  EXPECT_THAT(index.PlanRoom(kAnn, 10 * kMib),
              IsOkAndHolds(ElementsAre("old")));
  // Nothing is evicted from a user for another who would then have more.
  EXPECT_THAT(index.PlanRoom(kAnn, 45 * kMib),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("each of the other users has less")));
}

TEST(CacheIndexTest, AUserIsRefusedMoreThanHalfAndTheDaemonsIsNot) {
  const CacheIndex index = MakeIndex();
  EXPECT_THAT(index.PlanRoom(kAnn, kTotal / 2), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(index.PlanRoom(kAnn, kTotal / 2 + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1001 may have 52428800"),
                             HasSubstr("raise user_limits.max_cache_mib"))));
  EXPECT_THAT(index.PlanRoom(kDaemon, kTotal), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(index.PlanRoom(0, kTotal), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(index.PlanRoom(0, kTotal + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("raise cache.limit_mib")));
}

TEST(CacheIndexTest, ALimitThatIsSetBindsAllUsersAndZeroNone) {
  const CacheIndex limited = MakeIndex(30 * kMib);
  for (const uint32_t uid : {0u, kDaemon, kAnn}) {
    EXPECT_THAT(limited.PlanRoom(uid, 30 * kMib), IsOkAndHolds(IsEmpty()));
    EXPECT_THAT(limited.PlanRoom(uid, 30 * kMib + 1),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("user_limits.max_cache_mib")));
  }
  EXPECT_THAT(MakeIndex(0).PlanRoom(kAnn, kTotal), IsOkAndHolds(IsEmpty()));
}

TEST(CacheIndexTest, TinyEntriesAreBoundedInNumber) {
  CacheIndex index = MakeIndex();
  for (int64_t i = 0; i < CacheIndex::kMaxEntries / 2; ++i) {
    EXPECT_FALSE(index.Contains(absl::StrCat(i)));
    index.Add(absl::StrCat(i), kBob, 1);
  }
  EXPECT_THAT(index.PlanRoom(kBob, 1), IsOkAndHolds(ElementsAre("0")));
  EXPECT_THAT(index.PlanRoom(kAnn, 1), IsOkAndHolds(IsEmpty()));
}

TEST(CacheIndexTest, ALowerLimitTakesFromWhoHasTheMost) {
  CacheIndex index = MakeIndex();
  index.Add("a", kAnn, 20 * kMib);
  index.Add("b", kBob, 30 * kMib);
  index.Add("c", kBob, 30 * kMib);
  EXPECT_THAT(index.PlanRoom(), IsEmpty());
  index.SetLimits({.total_bytes = 45 * kMib});
  EXPECT_THAT(index.PlanRoom(), ElementsAre("b", "c"));
  index.SetLimits({.total_bytes = 50 * kMib});
  EXPECT_THAT(index.PlanRoom(), ElementsAre("b"));
}

TEST(CacheIndexTest, AnEntryInUseIsKeptAndCounts) {
  CacheIndex index = MakeIndex();
  index.Add("a", kAnn, 45 * kMib);
  index.Add("b", kBob, 40 * kMib);
  index.Pin("a");
  index.Pin("a");
  index.Unpin("a");
  EXPECT_TRUE(index.IsPinned("a"));
  // Ann has the most, and it stays.
  EXPECT_THAT(index.PlanRoom(kCyd, 20 * kMib), IsOkAndHolds(ElementsAre("b")));
  EXPECT_THAT(index.PlanRoom(kAnn, 20 * kMib),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("mapped datasets use"),
                             HasSubstr("unload one"))));
  index.Unpin("a");
  EXPECT_FALSE(index.IsPinned("a"));
  EXPECT_THAT(index.PlanRoom(kCyd, 20 * kMib), IsOkAndHolds(ElementsAre("a")));
}

}  // namespace
}  // namespace datasetd
