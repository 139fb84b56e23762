#include "tests/testing/status_matchers.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::testing {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Not;
using ::testing::Pointee;
using ::testing::StringMatchResultListener;

absl::Status Missing() { return absl::NotFoundError("no such file: a.npy"); }

TEST(StatusMatchersTest, IsOkTakesStatusAndStatusOr) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(absl::StatusOr<int>(1), IsOk());
  EXPECT_THAT(Missing(), Not(IsOk()));
  EXPECT_THAT(absl::StatusOr<int>(Missing()), Not(IsOk()));
}

TEST(StatusMatchersTest, StatusIsComparesCodeAndMessage) {
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  EXPECT_THAT(Missing(), StatusIs(kNotFound));
  EXPECT_THAT(Missing(), StatusIs(kNotFound, HasSubstr("a.npy")));
  EXPECT_THAT(Missing(), StatusIs(kNotFound, "no such file: a.npy"));
  EXPECT_THAT(absl::StatusOr<int>(Missing()), StatusIs(kNotFound));
  EXPECT_THAT(Missing(), Not(StatusIs(kNotFound, HasSubstr("b.npy"))));
  EXPECT_THAT(Missing(), Not(StatusIs(absl::StatusCode::kInternal)));
  EXPECT_THAT(absl::OkStatus(), Not(StatusIs(kNotFound)));
}

TEST(StatusMatchersTest, IsOkAndHoldsMatchesTheValue) {
  EXPECT_THAT(absl::StatusOr<int>(7), IsOkAndHolds(7));
  EXPECT_THAT(absl::StatusOr<int>(7), IsOkAndHolds(Gt(6)));
  EXPECT_THAT(absl::StatusOr<int>(7), Not(IsOkAndHolds(8)));
  EXPECT_THAT(absl::StatusOr<int>(Missing()), Not(IsOkAndHolds(7)));
  EXPECT_THAT(absl::StatusOr<std::string>("abc"), IsOkAndHolds("abc"));
  EXPECT_THAT(absl::StatusOr<bool>(true), IsOkAndHolds(true));
}

TEST(StatusMatchersTest, IsOkAndHoldsTakesValuesThatOnlyMove) {
  const absl::StatusOr<std::unique_ptr<int>> holder = std::make_unique<int>(3);
  EXPECT_THAT(holder, IsOkAndHolds(Pointee(3)));
}

TEST(StatusMatchersTest, ExplainsWithTheStatus) {
  StringMatchResultListener listener;
  const Matcher<absl::Status> is_ok = IsOk();
  EXPECT_FALSE(is_ok.MatchAndExplain(Missing(), &listener));
  EXPECT_THAT(listener.str(), HasSubstr("NOT_FOUND: no such file: a.npy"));
}

}  // namespace
}  // namespace datasetd::testing
