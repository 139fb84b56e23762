// A wait for a daemon that does not answer can be broken off.

#include "client/connection/call_limits.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "client/c_api/datasetd.h"
#include "client/client.h"
#include "client/connection/error_detail.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::client {
namespace {

using ::testing::AllOf;
using testing::FakeAttachServer;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::SomeFeed;
using testing::StatusIs;

auto IsBrokenOff() {
  return StatusIs(absl::StatusCode::kCancelled, HasSubstr("broken off"));
}

class CallLimitsTest : public ::testing::Test {
 protected:
  absl::StatusOr<Client> Connect() {
    ClientOptions options;
    options.address = daemon_.address();
    options.call_timeout = absl::InfiniteDuration();
    options.connect_timeout = absl::InfiniteDuration();
    options.on_wait = [this] { return !is_hanging_ || ++num_waits_ < 2; };
    return Client::Connect(options);
  }
  void SetHangs(bool hangs) {
    daemon_.SetHangs(hangs);
    is_hanging_ = hangs;
  }
  void SetSilent() {
    daemon_.attach().SetHelloAnswer(FakeAttachServer::HelloAnswer::kSilence);
    is_hanging_ = true;
  }

  FakeDaemon daemon_;
  bool is_hanging_ = false;
  int num_waits_ = 0;
};

TEST_F(CallLimitsTest, UnaryCalls) {
  auto client = Connect();
  ASSERT_THAT(client, IsOk());
  SetHangs(true);
  EXPECT_THAT(client->GetStatus(), IsBrokenOff());
  EXPECT_EQ(num_waits_, 2);
  SetHangs(false);
  EXPECT_THAT(client->GetStatus(), IsOk());
}

TEST_F(CallLimitsTest, LoadsWithoutAFunctionOfTheirOwn) {
  auto client = Connect();
  ASSERT_THAT(client, IsOk());
  SetHangs(true);
  v1::DatasetSpec spec;
  spec.set_name("fake");
  EXPECT_THAT(client->LoadDataset(spec),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(CallLimitsTest, OpeningAFeed) {
  auto client = Connect();
  ASSERT_THAT(client, IsOk());
  SetHangs(true);
  EXPECT_THAT(client->OpenFeed(SomeFeed()), IsBrokenOff());
  SetHangs(false);
  EXPECT_THAT(client->OpenFeed(SomeFeed()), IsOk());
}

TEST_F(CallLimitsTest, AttachingAFeed) {
  auto client = Connect();
  ASSERT_THAT(client, IsOk());
  SetSilent();
  EXPECT_THAT(client->OpenFeed(SomeFeed()), IsBrokenOff());
}

TEST_F(CallLimitsTest, Connecting) {
  SetSilent();
  EXPECT_THAT(Connect(), IsBrokenOff());
}

// A listener that lets nobody in.
class FullListener {
 public:
  explicit FullListener(const std::string& path) {
    name_.sun_family = AF_UNIX;
    memcpy(name_.sun_path, path.data(), path.size());
    fd_ = NewSocket();
    EXPECT_EQ(bind(fd_.get(), address(), sizeof(name_)), 0);
    EXPECT_EQ(listen(fd_.get(), 0), 0);
    do {
      waiting_.push_back(NewSocket(SOCK_NONBLOCK));
    } while (connect(waiting_.back().get(), address(), sizeof(name_)) == 0);
    EXPECT_EQ(errno, EAGAIN);
  }

 private:
  static FileDescriptor NewSocket(int flags = 0) {
    return FileDescriptor(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  }
  const sockaddr* address() const {
    return reinterpret_cast<const sockaddr*>(&name_);
  }

  sockaddr_un name_ = {};
  FileDescriptor fd_;
  std::vector<FileDescriptor> waiting_;
};

TEST(FullListenerTest, TheWaitToBeLetInEndsInTimeOrIsBrokenOff) {
  testing::TempDir directory(testing::TempDir::Place::kShortPath);
  const FullListener listener(directory.File("datasetd.sock"));
  ClientOptions options;
  options.address = directory.File("datasetd.sock");
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Milliseconds(250)}) {
    options.connect_timeout = timeout;
    const absl::Time begin = absl::Now();
    const auto client = Client::Connect(options);
    EXPECT_THAT(client, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("no daemon listens at"),
                                       HasSubstr(strerror(EAGAIN)))));
    EXPECT_EQ(DetailOf(client.status()), ErrorDetail::kDaemonGone);
    EXPECT_GE(absl::Now() - begin, timeout);
  }
  options.connect_timeout = absl::InfiniteDuration();
  int num_waits = 0;
  options.on_wait = [&] { return ++num_waits < 2; };
  EXPECT_THAT(Client::Connect(options), IsBrokenOff());
  EXPECT_EQ(num_waits, 2);
}

TEST(CallTimeoutTest, MayBeAsLongAsANumberCanBe) {
  FakeDaemon daemon;
  const std::string address = daemon.address();
  for (const int64_t timeout : {int64_t{-1}, INT64_MAX}) {
    datasetd_client_options options = {};
    options.struct_size = sizeof(options);
    options.address = address.c_str();
    options.connect_timeout_ns = timeout;
    options.call_timeout_ns = timeout;
    datasetd_client* client = nullptr;
    ASSERT_EQ(datasetd_client_connect(&options, &client, nullptr), DATASETD_OK);
    char* text = nullptr;
    EXPECT_EQ(datasetd_call(client, "GetStatus", "{}", &text, nullptr),
              DATASETD_OK);
    datasetd_free(text);
    datasetd_client_close(client);
  }
}

TEST(ThreadWaitTest, IsTheThreadsUntilItIsTakenAway) {
  FakeDaemon daemon;
  const std::string address = daemon.address();
  datasetd_client_options options = {};
  options.struct_size = sizeof(options);
  options.address = address.c_str();
  options.call_timeout_ns = 250'000'000;
  datasetd_client* client = nullptr;
  ASSERT_EQ(datasetd_client_connect(&options, &client, nullptr), DATASETD_OK);
  daemon.SetHangs(true);
  int num_waits = 0;
  const auto wait = [](void* argument) -> int32_t {
    return ++*static_cast<int*>(argument) == 2;
  };
  char* text = nullptr;
  datasetd_set_thread_wait(wait, &num_waits);
  EXPECT_EQ(datasetd_call(client, "GetStatus", "{}", &text, nullptr),
            DATASETD_CANCELLED);
  EXPECT_EQ(num_waits, 2);
  datasetd_set_thread_wait(nullptr, nullptr);
  EXPECT_EQ(datasetd_call(client, "GetStatus", "{}", &text, nullptr),
            DATASETD_DEADLINE_EXCEEDED);
  EXPECT_EQ(num_waits, 2);
  datasetd_client_close(client);
}

}  // namespace
}  // namespace datasetd::client
