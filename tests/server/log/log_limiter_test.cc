#include "server/log/log_limiter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace datasetd {
namespace {

using ::testing::SizeIs;

constexpr uint32_t kAlice = 1000;
constexpr uint32_t kBob = 1001;
constexpr LogLimiter::Options kOptions = {
    .lines_per_minute = 60, .bytes_per_minute = 6000, .max_users = 3};

class LogLimiterTest : public ::testing::Test {
 protected:
  // Lines that are admitted of `num_lines` of so many bytes.
  int Write(uint32_t uid, const std::string& kind, int num_lines,
            size_t size_bytes = 1) {
    int num_admitted = 0;
    for (int i = 0; i < num_lines; ++i) {
      if (!limiter_.Admit(uid, kind).is_admitted) continue;
      limiter_.Charge(uid, size_bytes);
      ++num_admitted;
    }
    return num_admitted;
  }

  FakeClock clock_;
  LogLimiter limiter_{kOptions, &clock_};
};

TEST_F(LogLimiterTest, AFloodIsCutAndCounted) {
  EXPECT_EQ(Write(kAlice, "refused", 1000), 60);
  EXPECT_EQ(Write(kAlice, "refused", 100'000), 0);
  // Neither another user's lines nor others of hers are left out.
  EXPECT_EQ(Write(kBob, "refused", 10), 10);
  EXPECT_EQ(Write(kAlice, "opened", 10), 10);
  EXPECT_THAT(limiter_.TakeLeftOut(), SizeIs(0));
  clock_.Advance(absl::Seconds(2));
  const auto verdict = limiter_.Admit(kAlice, "refused");
  EXPECT_TRUE(verdict.is_admitted);
  EXPECT_EQ(verdict.num_left_out, 100'940u);
  EXPECT_EQ(limiter_.Admit(kAlice, "refused").num_left_out, 0u);
  EXPECT_EQ(Write(kAlice, "refused", 10), 0);
}

TEST_F(LogLimiterTest, BytesAreOfAllKinds) {
  EXPECT_EQ(Write(kAlice, "a", 50, 200), 30);
  EXPECT_EQ(Write(kAlice, "b", 50, 200), 0);
  EXPECT_EQ(Write(kBob, "a", 1, 200), 1);
  clock_.Advance(absl::Seconds(30));
  EXPECT_EQ(Write(kAlice, "b", 50, 200), 15);
  // A long line is paid for later.
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Write(kAlice, "c", 2, 12'000), 1);
  clock_.Advance(absl::Seconds(59));
  EXPECT_EQ(Write(kAlice, "c", 1), 0);
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(Write(kAlice, "c", 1), 1);
}

TEST_F(LogLimiterTest, WhatWasLeftOutIsToldWhenTheFloodIsOver) {
  Write(kAlice, "refused", 100);
  clock_.Advance(absl::Seconds(1));
  const auto left_out = limiter_.TakeLeftOut();
  ASSERT_THAT(left_out, SizeIs(1));
  EXPECT_EQ(left_out[0].uid, kAlice);
  EXPECT_EQ(left_out[0].kind, "refused");
  EXPECT_EQ(left_out[0].num_lines, 40u);
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(limiter_.TakeLeftOut(), SizeIs(0));
  EXPECT_EQ(limiter_.Admit(kAlice, "refused").num_left_out, 0u);
}

TEST_F(LogLimiterTest, UsersWithoutAPlaceShareOne) {
  for (uint32_t uid = 1; uid <= 3; ++uid) EXPECT_EQ(Write(uid, "a", 1), 1);
  EXPECT_EQ(Write(4, "a", 100), 60);
  EXPECT_EQ(Write(5, "a", 100), 0);
  EXPECT_EQ(Write(1, "a", 100), 59);
  // After a minute nothing need be known of the first three.
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ(Write(6, "a", 100), 60);
  EXPECT_EQ(Write(7, "a", 100), 60);
}

}  // namespace
}  // namespace datasetd
