#include "server/dataset/user_places.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;

std::string Refuse(const UserPlaces::Usage& usage) {
  return absl::StrCat("uid ", usage.uid, ": ", usage.own, " of ", usage.max_own,
                      ", in total ", usage.total, " of ", usage.max_total);
}

TEST(UserPlacesTest, PrivilegedUsersMayHaveAnotherLimit) {
  UserPlaces places(3, PerUserLimit(1, 0), Refuse);
  const auto first = places.Take(0, /*is_privileged=*/true);
  const auto second = places.Take(0, /*is_privileged=*/true);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
  EXPECT_THAT(places.Take(0), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(places.Take(1), IsOk());
}

TEST(UserPlacesTest, OneUserHasALimitAndAllHaveOne) {
  UserPlaces places(3, 2, Refuse);
  auto first = places.Take(1000);
  const auto second = places.Take(1000);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(places.Take(1000), StatusIs(absl::StatusCode::kResourceExhausted,
                                          "uid 1000: 2 of 2, in total 2 of 3"));
  const auto other = places.Take(1001);
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(places.Take(1002), StatusIs(absl::StatusCode::kResourceExhausted,
                                          "uid 1002: 0 of 2, in total 3 of 3"));
  first = UserPlaces::Place();
  EXPECT_THAT(places.Take(1002), IsOk());
}

TEST(UserPlacesTest, WithoutALimitOfUsersOneMayHaveAll) {
  UserPlaces places(3, 0, Refuse);
  std::vector<UserPlaces::Place> taken;
  for (int i = 0; i < 3; ++i) {
    auto place = places.Take(1000);
    ASSERT_THAT(place, IsOk());
    taken.push_back(*std::move(place));
  }
  EXPECT_THAT(places.Take(1000), StatusIs(absl::StatusCode::kResourceExhausted,
                                          "uid 1000: 3 of 0, in total 3 of 3"));
}

TEST(UserPlacesTest, APlaceThatMovedIsGivenBackOnce) {
  UserPlaces places(1, 1, Refuse);
  UserPlaces::Place place;
  {
    auto taken = places.Take(1000);
    ASSERT_THAT(taken, IsOk());
    place = *std::move(taken);
  }
  UserPlaces::Place moved(std::move(place));
  EXPECT_THAT(places.Take(1000),
              StatusIs(absl::StatusCode::kResourceExhausted));
  moved = UserPlaces::Place();
  EXPECT_THAT(places.Take(1000), IsOk());
}

TEST(UserPlacesTest, ManyThreadsNeverHaveMoreThanTheLimit) {
  UserPlaces places(2, 0, Refuse);
  std::atomic<int> num_held = 0;
  std::atomic<int> most_held = 0;
  std::vector<std::thread> threads;
  for (uint32_t uid = 0; uid < 4; ++uid) {
    threads.emplace_back([&, uid] {
      for (int i = 0; i < 1000; ++i) {
        const auto place = places.Take(uid);
        if (!place.ok()) continue;
        const int held = ++num_held;
        int most = most_held.load();
        while (most < held && !most_held.compare_exchange_weak(most, held)) {
        }
        --num_held;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most_held.load(), 2);
  EXPECT_GE(most_held.load(), 1);
  // All of them came back.
  const auto first = places.Take(1);
  const auto second = places.Take(2);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
}

}  // namespace
}  // namespace datasetd
