#include "server/systemd/self_call.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

// A frame of HTTP/2 of one byte, of stream 0 or 1.
std::string FrameOf(char type, char stream) {
  return std::string("\0\0\1", 3) + type + std::string("\0\0\0\0", 4) + stream +
         "x";
}

class SelfCallTest : public ::testing::Test {
 protected:
  // Takes the call that was made and answers it, or keeps it without one.
  void Answer(const std::string& answer) {
    FileDescriptor connection = std::move(connection_);
    ASSERT_TRUE(connection.has_value());
    std::string call(4096, '\0');
    const ssize_t size = recv(connection.get(), call.data(), call.size(), 0);
    ASSERT_GT(size, 0);
    call.resize(static_cast<size_t>(size));
    EXPECT_THAT(call, ::testing::StartsWith("PRI * HTTP/2.0"));
    EXPECT_THAT(call, HasSubstr("/datasetd.v1.ServerService/GetStatus"));
    ASSERT_EQ(send(connection.get(), answer.data(), answer.size(), 0),
              static_cast<ssize_t>(answer.size()));
    kept_.push_back(std::move(connection));
  }
  absl::Status CheckLater() {
    clock_.Advance(SelfCall::kCallAge);
    return self_call_.Check();
  }

  FileDescriptor Connect() {
    int ends[2] = {-1, -1};
    if (can_connect_) {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           0, ends),
                0);
    }
    connection_ = FileDescriptor(ends[1]);
    return FileDescriptor(ends[0]);
  }

  bool can_connect_ = true;
  FileDescriptor connection_;  // of the last call
  std::vector<FileDescriptor> kept_;
  FakeClock clock_;
  SelfCall self_call_{[this] { return Connect(); }, &clock_};
};

TEST_F(SelfCallTest, AnyAnswerOfTheCallCounts) {
  for (const char type : {1, 3}) {  // HEADERS, RST_STREAM
    ASSERT_THAT(CheckLater(), IsOk());
    Answer(FrameOf(4, 0) + FrameOf(type, 1));
  }
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(CheckLater(), IsOk());
    Answer(FrameOf(1, 1));
  }
}

TEST_F(SelfCallTest, OneMissedAnswerIsForgiven) {
  ASSERT_THAT(CheckLater(), IsOk());
  Answer("");
  ASSERT_THAT(CheckLater(), IsOk());
  Answer(FrameOf(1, 1));
  ASSERT_THAT(CheckLater(), IsOk());
  Answer("");
  EXPECT_THAT(CheckLater(), IsOk());
}

TEST_F(SelfCallTest, FramesOfTheConnectionAreNoAnswer) {
  ASSERT_THAT(CheckLater(), IsOk());
  Answer(FrameOf(4, 0) + FrameOf(6, 0));
  ASSERT_THAT(CheckLater(), IsOk());
  Answer(FrameOf(1, 1).substr(0, 8));
  EXPECT_THAT(CheckLater(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                     HasSubstr("the last 2 calls")));
  Answer(FrameOf(1, 1));
  EXPECT_THAT(CheckLater(), IsOk());
}

TEST_F(SelfCallTest, ACallIsNotJudgedBeforeItsAge) {
  ASSERT_THAT(CheckLater(), IsOk());
  for (int i = 0; i < 19; ++i) {
    clock_.Advance(SelfCall::kCallAge / 20);
    ASSERT_THAT(self_call_.Check(), IsOk());
  }
  Answer("");
  EXPECT_FALSE(connection_.has_value());  // no second call
}

TEST_F(SelfCallTest, AConnectionThatIsClosedOrCannotBeMadeIsAnAnswer) {
  absl::Status status;
  for (int i = 0; i < 4; ++i) status = CheckLater();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  connection_ = FileDescriptor();
  EXPECT_THAT(CheckLater(), IsOk());
  can_connect_ = false;
  for (int i = 0; i < 4; ++i) EXPECT_THAT(CheckLater(), IsOk());
}

}  // namespace
}  // namespace datasetd
