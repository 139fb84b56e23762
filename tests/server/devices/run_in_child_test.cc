#include "server/devices/run_in_child.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(5);

bool HasChildren() { return waitpid(-1, nullptr, WNOHANG) >= 0; }

TEST(RunInChildTest, ReturnsWhatTheFunctionReturns) {
  EXPECT_THAT(RunInChild([] { return absl::OkStatus(); }, kLong), IsOk());
  EXPECT_THAT(
      RunInChild([] { return absl::NotFoundError("no cuda:3\nat all"); },
                 kLong),
      StatusIs(absl::StatusCode::kNotFound, "no cuda:3\nat all"));
  EXPECT_FALSE(HasChildren());
}

TEST(RunInChildTest, WhatTheFunctionDoesToItsProcessIsGone) {
  int value = 1;
  const pid_t self = getpid();
  EXPECT_THAT(RunInChild(
                  [&] {
                    value = 2;
                    return getpid() == self ? absl::InternalError("no child")
                                            : absl::OkStatus();
                  },
                  kLong),
              IsOk());
  EXPECT_EQ(value, 1);
}

TEST(RunInChildTest, AMessageThatIsTooLongIsCut) {
  const absl::Status status = RunInChild(
      [] { return absl::UnavailableError(std::string(100000, 'x')); }, kLong);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, std::string(4000, 'x')));
}

TEST(RunInChildTest, AChildThatDiesIsAnErrorThatSaysOfWhat) {
  EXPECT_THAT(RunInChild(
                  []() -> absl::Status {
                    raise(SIGKILL);
                    return absl::OkStatus();
                  },
                  kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("signal 9")));
  EXPECT_THAT(RunInChild([]() -> absl::Status { _exit(7); }, kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("with 7")));
}

TEST(RunInChildTest, AnInterruptKillsTheChild) {
  const FileDescriptor interrupt(eventfd(1, EFD_CLOEXEC));
  EXPECT_THAT(RunInChild(
                  []() -> absl::Status {
                    while (true) poll(nullptr, 0, -1);
                  },
                  kLong, {interrupt.get()}),
              StatusIs(absl::StatusCode::kCancelled, "interrupted"));
  EXPECT_FALSE(HasChildren());
}

TEST(RunInChildTest, AChildThatHangsIsKilled) {
  EXPECT_THAT(
      RunInChild(
          []() -> absl::Status {
            while (true) poll(nullptr, 0, -1);
          },
          absl::Milliseconds(50)),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "no answer within 50ms"));
  EXPECT_FALSE(HasChildren());
}

}  // namespace
}  // namespace datasetd
