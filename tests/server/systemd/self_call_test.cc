#include "server/systemd/self_call.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::HasSubstr;

// A frame of HTTP/2 of one byte, of stream 0 or 1.
std::string FrameOf(char type, char stream) {
  return std::string("\0\0\1", 3) + type + std::string("\0\0\0\0", 4) + stream +
         "x";
}

class SelfCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    ASSERT_LT(path_.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    ASSERT_EQ(listen(listener_.get(), 8), 0);
  }

  // Accepts the call that was made and answers it, or keeps it without one.
  void Answer(const std::string& answer) {
    FileDescriptor connection(accept4(listener_.get(), nullptr, nullptr,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
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

  const TempDir directory_{TempDir::Place::kShortPath};
  const std::string path_ = directory_.File("sock");
  FileDescriptor listener_{
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  std::vector<FileDescriptor> kept_;
  FakeClock clock_;
  SelfCall self_call_{path_, &clock_};
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
  EXPECT_LT(accept(listener_.get(), nullptr, nullptr), 0);  // no second call
}

TEST_F(SelfCallTest, AFullBacklogIsNoAnswerAndAClosedDoorIsOne) {
  // Nobody accepts: after the backlog is full, connect() says EAGAIN.
  absl::Status status;
  for (int i = 0; i < 20; ++i) status = CheckLater();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  listener_ = FileDescriptor();
  for (int i = 0; i < 3; ++i) status = CheckLater();
  EXPECT_THAT(status, IsOk());
}

}  // namespace
}  // namespace datasetd
