#include "server/attach/attach_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/attach/ring_channel.h"
#include "server/attach/seqpacket.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

FileDescriptor Connect(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  return fd;
}

template <typename Message>
Message Receive(const FileDescriptor& fd) {
  Message message = {};
  EXPECT_EQ(recv(fd.get(), &message, sizeof(message), 0),
            static_cast<ssize_t>(sizeof(message)));
  return message;
}

// Until a thread of this process waits for something.
void AwaitAsleep(pid_t thread) {
  char state = 0;
  while (state != 'S') {
    std::ifstream stat(absl::StrCat("/proc/self/task/", thread, "/stat"));
    std::string number;
    std::string name;
    stat >> number >> name >> state;
  }
}

// A file cannot be watched by epoll, as nothing can when its table is full.
TEST(AttachServerTest, WhatCannotBeWatchedIsAnErrorOfStart) {
  const auto server = AttachServer::Start(
      FileDescriptor(open("/proc/self/exe", O_RDONLY)),
      /*sessions=*/nullptr, /*gate=*/nullptr,
      /*feeds=*/nullptr, /*datasets=*/nullptr, /*observer=*/nullptr,
      /*on_tick=*/nullptr);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(server.status().message(),
              ::testing::HasSubstr("attach: epoll_ctl"));
}

TEST(AttachServerTest, ClientsHaveTheReasonOfADrainThatAnEndFollowsAtOnce) {
  const testing::TempDir directory(testing::TempDir::Place::kShortPath);
  const std::string path = directory.File("datasetd.sock");
  FakeClock clock;
  SessionTable sessions(8, 8);
  DeviceTable devices({});
  DatasetRegistry datasets(
      {}, &devices, nullptr, &clock,
      [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  auto feeds = FeedTable::Create(
      {}, &devices, &datasets, &RingChannel::Create, &clock,
      [](const char*, const FeedInfo&) {}, [](uint64_t, absl::Status) {});
  ASSERT_TRUE(feeds.ok()) << feeds.status();
  auto gate = RpcGate::Start(
      {.max_calls_per_user = 1,
       .num_running = [](uint32_t) { return 0; },
       .clock = &clock,
       .serve = [](uint64_t, FileDescriptor) {},
       .on_end = [](uint64_t, const std::string&) {},
       .observer = [](const char*, uint32_t, int32_t, const std::string&) {}});
  ASSERT_TRUE(gate.ok()) << gate.status();
  auto listener = ListenUnix(path, SOCK_SEQPACKET);
  ASSERT_TRUE(listener.ok()) << listener.status();

  // The server's thread is busy with another client until the server's end has
  // begun.
  absl::Notification is_busy;
  std::atomic<pid_t> ender = 0;
  auto server = AttachServer::Start(
      *std::move(listener), &sessions, gate->get(), feeds->get(), &datasets,
      [&](const char* event, uint32_t, int32_t,
          absl::FunctionRef<std::string()>) {
        if (std::strcmp(event, "protocol violation") != 0) return;
        is_busy.Notify();
        while (ender.load() == 0) std::this_thread::yield();
        AwaitAsleep(ender.load());
      },
      /*on_tick=*/nullptr);
  ASSERT_TRUE(server.ok()) << server.status();

  const FileDescriptor client = Connect(path);
  const attach::Hello hello = {
      {attach::kMagic, attach::kProtocolVersion, attach::MessageType::kHello},
      getpid()};
  ASSERT_EQ(send(client.get(), &hello, sizeof(hello), 0),
            static_cast<ssize_t>(sizeof(hello)));
  EXPECT_EQ(Receive<attach::Welcome>(client).header.type,
            attach::MessageType::kWelcome);
  const FileDescriptor other = Connect(path);
  ASSERT_EQ(send(other.get(), "x", 1, 0), 1);
  is_busy.WaitForNotification();

  (*server)->BeginDrain("the end");
  std::thread end([&] {
    ender.store(gettid());
    server->reset();
  });
  const auto goodbye = Receive<attach::Goodbye>(client);
  EXPECT_EQ(goodbye.header.type, attach::MessageType::kGoodbye);
  EXPECT_EQ(goodbye.code, attach::GoodbyeCode::kDraining);
  EXPECT_STREQ(goodbye.reason, "the end");
  end.join();
}

}  // namespace
}  // namespace datasetd
