#include "server/rpc/user_places.h"

#include <optional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UserPlacesTest, TheKeyOfTheLimitIsTold) {
  UserPlaces places("loads", 1, 1, "user_limits.max_loads");
  const auto place = places.Take(7);
  EXPECT_THAT(
      places.Take(7),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("1 of one user (user_limits.max_loads): try")));
}

TEST(UserPlacesTest, OneUserLeavesPlacesToOthers) {
  UserPlaces places("loads", 3, 2);
  const auto first = places.Take(7);
  ASSERT_THAT(first, IsOk());
  auto second = places.Take(7);
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(places.Take(7),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("loads"), HasSubstr("2 of one user"))));
  EXPECT_THAT(places.Take(8), IsOk());
  // It is given back at once.
  const auto others = places.Take(9);
  ASSERT_THAT(others, IsOk());
  EXPECT_THAT(places.Take(8), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("3 are under way")));
  {
    const UserPlaces::Place moved = *std::move(second);
    EXPECT_THAT(places.Take(7), StatusIs(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_THAT(places.Take(7), IsOk());
}

}  // namespace
}  // namespace datasetd
