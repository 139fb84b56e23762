#include "server/rpc/rpc_gate.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/http2_scanner.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kDeadline = absl::Seconds(30);
constexpr uint32_t kUid = 1000;
constexpr int kNumCalls = 10;

// A clock that a test moves, and that stands still otherwise.
class MovedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() + Monotonic(); }
  absl::Duration Monotonic() const override {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration step) {
    MutexLock lock(&mutex_);
    now_ += step;
  }

 private:
  mutable Mutex mutex_;
  absl::Duration now_ = absl::Seconds(1000);
};

// At most `size` bytes; fewer at the end of the connection.
std::string Receive(int fd, size_t size) {
  std::string received;
  while (received.size() < size) {
    pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1,
             static_cast<int>(absl::ToInt64Milliseconds(kDeadline))) != 1) {
      ADD_FAILURE() << "nothing within " << kDeadline;
      break;
    }
    char bytes[4096];
    const ssize_t count =
        recv(fd, bytes, std::min(size - received.size(), sizeof(bytes)), 0);
    if (count <= 0) break;
    received.append(bytes, static_cast<size_t>(count));
  }
  return received;
}

// Whether something comes soon; for what must not come.
bool HasBytes(int fd) {
  pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wait, 1, 50) != 0;
}

// Whether the relay goes on to read; for what it has no room for.
bool HasRoom(int fd) {
  pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&wait, 1, 200) == 1;
}

bool IsClosed(int fd) { return Receive(fd, 1).empty(); }

void Send(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

std::string Ping() {
  return std::string("\0\0\x08\x06\0\0\0\0\0", 9) + "12345678";
}

constexpr uint8_t kEndOfStream = 0x1;

std::string Frame(Http2FrameType type, uint8_t flags, uint8_t stream,
                  const std::string& payload) {
  const auto byte = [](size_t value) { return static_cast<char>(value); };
  return std::string{byte(payload.size() >> 16),
                     byte(payload.size() >> 8),
                     byte(payload.size()),
                     static_cast<char>(type),
                     static_cast<char>(flags),
                     0,
                     0,
                     0,
                     static_cast<char>(stream)} +
         payload;
}
// The beginning of a call, of which a body of 100 bytes is announced and half
// is there.
std::string HalfACall(uint8_t stream) {
  const std::string data =
      Frame(Http2FrameType::kData, kEndOfStream, stream, std::string(100, 'd'));
  return Frame(Http2FrameType::kHeaders, 0, stream, "h") +
         data.substr(0, data.size() - 50);
}
const std::string& RestOfACall() {
  static const auto* const rest = new std::string(50, 'd');
  return *rest;
}

class RpcGateTest : public ::testing::Test {
 protected:
  void Start(int max_calls = 32) {
    auto gate = RpcGate::Start(
        {.max_calls_per_user = max_calls,
         .num_running = [this](uint32_t) { return num_running_.load(); },
         .clock = &clock_,
         .serve =
             [this](uint64_t session_id, FileDescriptor connection) {
               MutexLock lock(&mutex_);
               served_.push_back(std::move(connection));
               sessions_.push_back(session_id);
             },
         .on_end =
             [this](uint64_t session_id, const std::string& reason) {
               MutexLock lock(&mutex_);
               ends_[session_id] = reason;
             },
         .observer =
             [this](const char* event, uint32_t, int32_t,
                    const std::string& detail) {
               MutexLock lock(&mutex_);
               events_.push_back(std::string(event) + ": " + detail);
             }});
    ASSERT_THAT(gate, IsOk());
    gate_ = *std::move(gate);
  }

  // Opens the next session's connection.
  FileDescriptor Connect() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         ends),
              0);
    gate_->Open({.session_id = ++last_session_, .uid = kUid},
                FileDescriptor(ends[0]));
    return FileDescriptor(ends[1]);
  }
  FileDescriptor ConnectAndSpeak() {
    FileDescriptor fd = Connect();
    Send(fd.get(), std::string(kHttp2Preface));
    return fd;
  }
  // Waits for the end of a session, and returns its reason.
  std::string AwaitEnd(uint64_t session_id) {
    const auto has_ended = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return ends_.count(session_id) > 0;
    };
    MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(Condition(&has_ended), kDeadline));
    return ends_[session_id];
  }
  // Waits for the next connection that is handed to gRPC, and returns it.
  FileDescriptor AwaitServed() {
    const auto has_one = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !served_.empty();
    };
    MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(Condition(&has_one), kDeadline)) {
      ADD_FAILURE() << "no connection was handed over";
      return FileDescriptor();
    }
    FileDescriptor served = std::move(served_.front());
    served_.erase(served_.begin());
    return served;
  }
  size_t num_served() {
    MutexLock lock(&mutex_);
    return served_.size();
  }
  void AwaitEvent() {
    const auto has_one = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !events_.empty();
    };
    MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(Condition(&has_one), kDeadline));
  }

  MovedClock clock_;
  std::atomic<int> num_running_ = 0;
  uint64_t last_session_ = 0;
  Mutex mutex_;
  std::vector<FileDescriptor> served_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcGate> gate_;
};

TEST_F(RpcGateTest, PassesBytesBothWaysAndNamesTheSession) {
  Start();
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  EXPECT_EQ(Receive(server.get(), kHttp2Preface.size()), kHttp2Preface);
  {
    MutexLock lock(&mutex_);
    EXPECT_THAT(sessions_, ElementsAre(1));
  }
  Send(client.get(), Ping());
  EXPECT_EQ(Receive(server.get(), 17), Ping());
  Send(server.get(), Ping());
  EXPECT_EQ(Receive(client.get(), 17), Ping());
}

TEST_F(RpcGateTest, MoreThanTheSocketsHold) {
  Start();
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  EXPECT_EQ(Receive(server.get(), kHttp2Preface.size()), kHttp2Preface);
  // One frame of data.
  const std::string data =
      std::string("\x7f\xff\xff\0\0\0\0\0\x01", 9) + std::string(0x7fffff, 'x');
  std::thread sender([&] {
    size_t sent = 0;
    while (sent < data.size()) {
      const ssize_t count = send(server.get(), data.data() + sent,
                                 data.size() - sent, MSG_NOSIGNAL);
      if (count < 0) {
        pollfd wait = {.fd = server.get(), .events = POLLOUT, .revents = 0};
        poll(&wait, 1, -1);
        continue;
      }
      sent += static_cast<size_t>(count);
    }
  });
  EXPECT_EQ(Receive(client.get(), data.size()), data);
  sender.join();
}

TEST_F(RpcGateTest, TheEndOfOneSideIsTheOthersAndTheSessions) {
  Start();
  {
    const FileDescriptor client = ConnectAndSpeak();
    const FileDescriptor server = AwaitServed();
    EXPECT_EQ(Receive(server.get(), kHttp2Preface.size()), kHttp2Preface);
    shutdown(client.get(), SHUT_RDWR);
    EXPECT_TRUE(IsClosed(server.get()));
    EXPECT_EQ(AwaitEnd(1), "");
  }
  {
    const FileDescriptor client = ConnectAndSpeak();
    FileDescriptor server = AwaitServed();
    Send(server.get(), "last words");
    server.Reset();
    EXPECT_EQ(Receive(client.get(), 100), "last words");
    EXPECT_EQ(AwaitEnd(2), "gRPC closed its connection");
  }
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  EXPECT_EQ(Receive(server.get(), kHttp2Preface.size()), kHttp2Preface);
  gate_->Close(3);
  EXPECT_TRUE(IsClosed(server.get()));
  EXPECT_TRUE(IsClosed(client.get()));
  MutexLock lock(&mutex_);
  EXPECT_THAT(ends_, SizeIs(2));
}

TEST_F(RpcGateTest, AClientThatTakesNoMoreBytesHasClosedItsConnection) {
  Start();
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  shutdown(client.get(), SHUT_RD);
  Send(server.get(), Ping());
  EXPECT_EQ(AwaitEnd(1), "");
}

// Otherwise calls that are sent in part would wait for each other.
TEST_F(RpcGateTest, AtTheLimitOpenCallsGoOnAndNewOnesWait) {
  Start(kNumCalls);
  std::vector<FileDescriptor> clients, servers;
  const auto connect = [&] {
    clients.push_back(ConnectAndSpeak());
    servers.push_back(AwaitServed());
    EXPECT_EQ(Receive(servers.back().get(), kHttp2Preface.size()),
              kHttp2Preface);
  };
  for (int i = 0; i < kNumCalls; ++i) {
    connect();
    Send(clients[i].get(), HalfACall(1));
    EXPECT_EQ(Receive(servers[i].get(), HalfACall(1).size()), HalfACall(1));
  }
  // A new call waits, alone on its connection or behind frames that may pass.
  connect();
  Send(clients.back().get(), Ping() + HalfACall(1));
  EXPECT_EQ(Receive(servers.back().get(), 17), Ping());
  Send(clients[5].get(), RestOfACall() + HalfACall(3));
  EXPECT_EQ(Receive(servers[5].get(), 50), RestOfACall());
  // Open calls go on, on all other connections.
  Send(clients[7].get(), RestOfACall());
  EXPECT_EQ(Receive(servers[7].get(), 50), RestOfACall());
  const std::string reset =
      Frame(Http2FrameType::kRstStream, 0, 1, std::string(4, '\0'));
  EXPECT_FALSE(HasBytes(servers.back().get()));
  EXPECT_FALSE(HasBytes(servers[5].get()));
  // Each call that ends makes room for a new one.
  Send(clients[8].get(), RestOfACall() + reset);
  EXPECT_EQ(Receive(servers[8].get(), 50 + 13), RestOfACall() + reset);
  Send(servers[7].get(), Frame(Http2FrameType::kHeaders, kEndOfStream, 1, "t"));
  EXPECT_EQ(Receive(servers.back().get(), HalfACall(1).size()), HalfACall(1));
  EXPECT_EQ(Receive(servers[5].get(), HalfACall(3).size()), HalfACall(3));
}

TEST_F(RpcGateTest, TheRestOfACallBehindNewCallsIsNotWaitedForInVain) {
  Start(kNumCalls);
  const std::string open = Frame(Http2FrameType::kHeaders, 0, 1, "h");
  const std::string next =
      Frame(Http2FrameType::kHeaders, 0, 3, "h") +
      Frame(Http2FrameType::kData, kEndOfStream, 1, "first") +
      Frame(Http2FrameType::kData, kEndOfStream, 3, "second");
  std::vector<FileDescriptor> clients, servers;
  for (int i = 0; i < kNumCalls; ++i) {
    clients.push_back(ConnectAndSpeak());
    servers.push_back(AwaitServed());
    Send(clients[i].get(), open);
    EXPECT_EQ(Receive(servers[i].get(), kHttp2Preface.size() + open.size()),
              std::string(kHttp2Preface) + open);
  }
  for (const FileDescriptor& client : clients) Send(client.get(), next);
  // One after another, although no call has an answer.
  for (const FileDescriptor& server : servers) {
    EXPECT_EQ(Receive(server.get(), next.size()), next);
  }
}

// Those that one connection sends at once as well; and if the beginning of a
// frame's header has passed, with the last call that may.
TEST_F(RpcGateTest, NoMoreCallsPassThanTheUserMayHave) {
  const auto call = [](int i) {
    return Frame(Http2FrameType::kHeaders, kEndOfStream,
                 static_cast<uint8_t>(2 * i + 1), "h");
  };
  std::string first(kHttp2Preface), rest;
  for (int i = 0; i < kNumCalls; ++i) first += call(i);
  for (int i = kNumCalls; i < 2 * kNumCalls; ++i) rest += call(i);
  rest += Ping();
  for (const size_t part : {0, 5}) {
    SCOPED_TRACE(part);
    Start(kNumCalls);
    const FileDescriptor client = Connect();
    Send(client.get(), first + rest.substr(0, part > 0 ? part : rest.size()));
    const FileDescriptor server = AwaitServed();
    EXPECT_EQ(Receive(server.get(), first.size() + part),
              first + rest.substr(0, part));
    if (part > 0) Send(client.get(), rest.substr(part));
    EXPECT_FALSE(HasBytes(server.get()));
    Send(server.get(), Frame(Http2FrameType::kHeaders, kEndOfStream, 1, "t"));
    EXPECT_EQ(Receive(server.get(), call(0).size() - part),
              call(kNumCalls).substr(part));
    EXPECT_FALSE(HasBytes(server.get()));
    for (int i = 1; i < kNumCalls; ++i) {
      Send(server.get(), Frame(Http2FrameType::kHeaders, kEndOfStream,
                               static_cast<uint8_t>(2 * i + 1), "t"));
    }
    const std::string last = rest.substr(call(0).size());
    EXPECT_EQ(Receive(server.get(), last.size()), last);
  }
}

TEST_F(RpcGateTest, CallsThatWereAbandonedAndStillRunAreWaitedFor) {
  Start(kNumCalls);
  num_running_ = 2 * kNumCalls;
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  Send(client.get(), Ping() + HalfACall(1));
  EXPECT_EQ(Receive(server.get(), kHttp2Preface.size() + 17),
            std::string(kHttp2Preface) + Ping());
  EXPECT_FALSE(HasBytes(server.get()));
  num_running_ = 2 * kNumCalls - 1;
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Receive(server.get(), HalfACall(1).size()), HalfACall(1));
}

TEST_F(RpcGateTest, GrpcHearsOfNobodyWhoDoesNotSpeakHttp2) {
  Start();
  const FileDescriptor silent = Connect();
  const FileDescriptor slow = Connect();
  Send(slow.get(), "PRI * H");
  const FileDescriptor wrong = Connect();
  Send(wrong.get(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(IsClosed(wrong.get()));
  EXPECT_THAT(AwaitEnd(3), HasSubstr("another protocol than HTTP/2"));
  EXPECT_EQ(num_served(), 0);
}

TEST_F(RpcGateTest, SessionsThatStopInAFrameOrReadNothingEnd) {
  Start();
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  Send(client.get(), Ping().substr(0, 5));
  EXPECT_EQ(Receive(server.get(), 24 + 5),
            std::string(kHttp2Preface) + Ping().substr(0, 5));
  const FileDescriptor unread = ConnectAndSpeak();
  const FileDescriptor full = AwaitServed();
  const std::string bytes(1 << 16, 'x');
  while (send(full.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 ||
         HasRoom(full.get())) {
  }
  clock_.Advance(absl::Seconds(11));
  EXPECT_THAT(AwaitEnd(1), HasSubstr("was not sent to the end in time"));
  clock_.Advance(absl::Seconds(61));
  EXPECT_THAT(AwaitEnd(2), HasSubstr("were not read in time"));
  EXPECT_EQ(gate_->counters().num_expired.load(), 2);
}

TEST_F(RpcGateTest, AbuseIsAnsweredAndClosed) {
  Start();
  const FileDescriptor client = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  std::string flood;
  for (int i = 0; i < 1100; ++i) flood += Ping();
  Send(client.get(), flood);
  const std::string answer = Receive(client.get(), 17);
  ASSERT_EQ(answer.size(), 17);
  EXPECT_EQ(answer[3], 7);     // GOAWAY
  EXPECT_EQ(answer[16], 0xb);  // ENHANCE_YOUR_CALM
  EXPECT_TRUE(IsClosed(client.get()));
  EXPECT_EQ(AwaitEnd(1), "too many frames without a call");
  EXPECT_EQ(gate_->counters().num_abusive.load(), 1);
  // The rest of the flood did not get through.
  EXPECT_LT(Receive(server.get(), flood.size() + 24).size(),
            flood.size() / 2 + 24 + (64 << 10));
}

TEST_F(RpcGateTest, AUserWhoGivesUpManyCallsHasToWait) {
  Start();
  std::vector<FileDescriptor> servers;
  // Calls that end with their connections: 32 at a time, 64 may be forgotten.
  std::string calls(kHttp2Preface);
  for (int i = 0; i < 32; ++i) {
    calls +=
        std::string("\0\0\0\x01\x04\0\0\0", 8) + static_cast<char>(2 * i + 1);
  }
  for (int i = 0; i < 3; ++i) {
    FileDescriptor client = Connect();
    Send(client.get(), calls);
    servers.push_back(AwaitServed());
    EXPECT_EQ(Receive(servers.back().get(), calls.size()), calls);
    shutdown(client.get(), SHUT_RDWR);
    EXPECT_TRUE(IsClosed(servers.back().get()));
  }
  // 3 * 32 - 64 calls are too many: half a second, at 64 a second.
  const FileDescriptor client = ConnectAndSpeak();
  pollfd wait = {.fd = client.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&wait, 1, 100), 0);
  EXPECT_EQ(num_served(), 0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(AwaitServed().has_value());
}

TEST_F(RpcGateTest, ASessionWithoutADescriptorForItsCallsEnds) {
  Start();
  const FileDescriptor client = Connect();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const FileDescriptor highest(dup(0));
  const rlimit low = {.rlim_cur = static_cast<rlim_t>(highest.get()) + 1,
                      .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  Send(client.get(), std::string(kHttp2Preface));
  EXPECT_TRUE(IsClosed(client.get()));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(AwaitEnd(1), HasSubstr("no file descriptor left"));
  const FileDescriptor next = ConnectAndSpeak();
  EXPECT_TRUE(AwaitServed().has_value());
}

TEST_F(RpcGateTest, AfterTheDoorIsClosedGrpcGetsNothing) {
  Start();
  const FileDescriptor early = ConnectAndSpeak();
  const FileDescriptor server = AwaitServed();
  gate_->CloseDoor();
  const FileDescriptor late = ConnectAndSpeak();
  Send(server.get(), "answer");
  EXPECT_EQ(Receive(early.get(), 6), "answer");
  gate_.reset();
  EXPECT_TRUE(IsClosed(early.get()));
  EXPECT_TRUE(IsClosed(late.get()));
  EXPECT_EQ(num_served(), 0);
}

}  // namespace
}  // namespace datasetd
