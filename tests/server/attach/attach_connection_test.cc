#include "server/attach/attach_connection.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/attach/seqpacket.h"

namespace datasetd {
namespace {

using attach::MessageType;
using ::testing::ElementsAreArray;
using ::testing::StrEq;
using Role = AttachConnection::Role;

class AttachConnectionTest : public ::testing::Test {
 protected:
  AttachConnectionTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client_ = FileDescriptor(ends[0]);
    connection_ = AttachConnection::Create(FileDescriptor(ends[1]));
    EXPECT_NE(connection_, nullptr);
  }
  template <typename Out>
  static Out Make(MessageType type) {
    Out message = {};
    message.header = {attach::kMagic, attach::kProtocolVersion, type};
    return message;
  }
  // Sends these bytes, and returns what the connection makes of them.
  AttachConnection::Message Say(const void* data, size_t size_bytes,
                                const std::vector<int>& descriptors = {}) {
    EXPECT_TRUE(SendSeqpacket(client_.get(), data, size_bytes, descriptors));
    return connection_->Receive();
  }
  template <typename Out>
  AttachConnection::Message Say(const Out& message) {
    return Say(&message, sizeof(message));
  }
  static std::string WhatIsWrong(const AttachConnection::Message& message) {
    const auto* violation = std::get_if<AttachConnection::Violation>(&message);
    return violation == nullptr ? "nothing" : violation->what;
  }
  // Returns the message that the client has received.
  template <typename In>
  In Hear() {
    In message;
    EXPECT_EQ(recv(client_.get(), &message, sizeof(message), MSG_DONTWAIT),
              static_cast<ssize_t>(sizeof(message)));
    EXPECT_EQ(message.header.magic, attach::kMagic);
    EXPECT_EQ(message.header.version, attach::kProtocolVersion);
    return message;
  }
  void OpenLease() { EXPECT_TRUE(connection_->BecomeLease(7, {})); }

  FileDescriptor client_;
  std::unique_ptr<AttachConnection> connection_;
};

TEST_F(AttachConnectionTest, ItKnowsWhoIsThere) {
  EXPECT_EQ(connection_->uid(), getuid());
  EXPECT_EQ(connection_->pid(), getpid());
  EXPECT_EQ(connection_->role(), Role::kNew);
  EXPECT_TRUE(connection_->TakeProcess().has_value());
  EXPECT_FALSE(connection_->TakeProcess().has_value());
}

TEST_F(AttachConnectionTest, ItKnowsThatNoDescriptorIsLeft) {
  EXPECT_FALSE(connection_->lacks_descriptor());
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor client(ends[0]);
  FileDescriptor accepted(ends[1]);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit lower = limit;
  FileDescriptor lowest(dup(ends[0]));
  lower.rlim_cur = static_cast<rlim_t>(lowest.get());
  lowest = FileDescriptor();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  const auto connection = AttachConnection::Create(std::move(accepted));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_NE(connection, nullptr);
  EXPECT_TRUE(connection->lacks_descriptor());
}

TEST_F(AttachConnectionTest, NothingAndTheEndAreTold) {
  EXPECT_TRUE(std::holds_alternative<AttachConnection::Nothing>(
      connection_->Receive()));
  client_ = FileDescriptor();
  EXPECT_TRUE(
      std::holds_alternative<AttachConnection::End>(connection_->Receive()));
}

TEST_F(AttachConnectionTest, ANewOneMayIntroduceItself) {
  EXPECT_TRUE(std::holds_alternative<attach::Hello>(
      Say(Make<attach::Hello>(MessageType::kHello))));
  auto request = Make<attach::AttachFeed>(MessageType::kAttachFeed);
  request.feed_id = 9;
  request.token[3] = 5;
  const auto message = Say(request);
  ASSERT_TRUE(std::holds_alternative<attach::AttachFeed>(message));
  EXPECT_EQ(std::get<attach::AttachFeed>(message).feed_id, 9);
  EXPECT_EQ(std::get<attach::AttachFeed>(message).token[3], 5);
}

TEST_F(AttachConnectionTest, ASessionHasItsTokenAndSaysNothingMore) {
  SessionTable::Opened opened = {.token = {}, .session_id = 4};
  for (size_t i = 0; i < opened.token.size(); ++i) {
    opened.token[i] = static_cast<uint8_t>(i * 17);
  }
  ASSERT_TRUE(connection_->BecomeSession(opened, client_.get()));
  EXPECT_EQ(connection_->role(), Role::kSession);
  EXPECT_EQ(connection_->session_id(), 4);
  EXPECT_EQ(connection_->token(), opened.token);
  const auto welcome = Hear<attach::Welcome>();
  EXPECT_EQ(welcome.header.type, MessageType::kWelcome);
  EXPECT_THAT(welcome.token, ElementsAreArray(opened.token));
  for (const MessageType type :
       {MessageType::kHello, MessageType::kClosing, MessageType::kDetached}) {
    EXPECT_EQ(WhatIsWrong(Say(Make<attach::Hello>(type))),
              "a message out of order");
  }
}

TEST_F(AttachConnectionTest, ALeaseGetsItsDescriptors) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const FileDescriptor reads(pipe_ends[0]);
  const FileDescriptor writes(pipe_ends[1]);
  ASSERT_TRUE(connection_->BecomeLease(7, {pipe_ends[0], pipe_ends[1]}));
  EXPECT_EQ(connection_->role(), Role::kLease);
  EXPECT_EQ(connection_->feed_id(), 7);

  attach::Attached attached;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec part = {&attached, sizeof(attached)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ASSERT_EQ(recvmsg(client_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC),
            static_cast<ssize_t>(sizeof(attached)));
  EXPECT_EQ(attached.header.type, MessageType::kAttached);
  EXPECT_EQ(attached.num_descriptors, 2);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  ASSERT_NE(header, nullptr);
  ASSERT_EQ(header->cmsg_len, CMSG_LEN(2 * sizeof(int)));
  int received[2];
  std::memcpy(received, CMSG_DATA(header), sizeof(received));
  const FileDescriptor first(received[0]);
  const FileDescriptor second(received[1]);
  // They are the pipe's.
  ASSERT_EQ(write(second.get(), "x", 1), 1);
  char byte;
  EXPECT_EQ(read(reads.get(), &byte, 1), 1);
}

TEST_F(AttachConnectionTest, ALeaseMaySayHowItEnds) {
  OpenLease();
  auto result = Make<attach::ImportResult>(MessageType::kImportResult);
  std::memset(result.reason, 'x', sizeof(result.reason));
  const auto message = Say(result);
  ASSERT_TRUE(std::holds_alternative<attach::ImportResult>(message));
  // No longer than its room, whatever the client wrote.
  EXPECT_THAT(std::get<attach::ImportResult>(message).reason,
              StrEq(std::string(attach::kTextBytes - 1, 'x')));
  EXPECT_TRUE(std::holds_alternative<attach::Closing>(
      Say(Make<attach::Closing>(MessageType::kClosing))));
  connection_->BecomeEnding();
  EXPECT_EQ(connection_->feed_id(), 7);
  EXPECT_TRUE(std::holds_alternative<attach::Detached>(
      Say(Make<attach::Detached>(MessageType::kDetached))));
  EXPECT_EQ(WhatIsWrong(Say(Make<attach::Hello>(MessageType::kHello))),
            "a message out of order");
}

TEST_F(AttachConnectionTest, ALeaseSetsWeightsOneAfterAnother) {
  const auto request = Make<attach::SetWeights>(MessageType::kSetWeights);
  const auto say = [&] {
    return Say(&request, sizeof(request), {client_.get()});
  };
  EXPECT_EQ(WhatIsWrong(say()), "a message out of order");
  OpenLease();
  Hear<attach::Attached>();
  for (const absl::Status& status :
       {absl::OkStatus(), absl::InvalidArgumentError("weights[0] is -1")}) {
    EXPECT_TRUE(std::holds_alternative<attach::SetWeights>(say()));
    EXPECT_EQ(connection_->TakeDescriptors().size(), 1);
    connection_->BeginSetWeights();
    EXPECT_EQ(WhatIsWrong(say()), "a message out of order");
    ASSERT_TRUE(connection_->AnswerSetWeights(status));
    const auto answer = Hear<attach::WeightsAnswer>();
    EXPECT_EQ(answer.header.type, MessageType::kWeightsAnswer);
    EXPECT_EQ(answer.status_code, static_cast<uint32_t>(status.code()));
    EXPECT_THAT(answer.reason, StrEq(std::string(status.message())));
  }
  connection_->BecomeEnding();
  EXPECT_TRUE(std::holds_alternative<attach::SetWeights>(say()));
}

// The end of a socket with messages unread is a reset of the other one.
TEST_F(AttachConnectionTest, WhatWasSaidBeforeAResetIsReceived) {
  OpenLease();
  EXPECT_TRUE(connection_->SendGoodbye(attach::GoodbyeCode::kUnloaded, "gone"));
  const auto detached = Make<attach::Detached>(MessageType::kDetached);
  EXPECT_TRUE(SendSeqpacket(client_.get(), &detached, sizeof(detached)));
  client_ = FileDescriptor();
  EXPECT_TRUE(std::holds_alternative<attach::Detached>(connection_->Receive()));
}

TEST_F(AttachConnectionTest, WhatIsNoMessageIsNamed) {
  auto hello = Make<attach::Hello>(MessageType::kHello);
  EXPECT_EQ(WhatIsWrong(Say(&hello, sizeof(hello.header) - 1)),
            "a message too short");
  EXPECT_EQ(WhatIsWrong(Say(&hello, sizeof(hello) - 1)),
            "a message out of order");
  EXPECT_EQ(WhatIsWrong(Say(Make<attach::Welcome>(MessageType::kHello))),
            "a message out of order");
  const std::vector<char> large(sizeof(attach::ImportResult) + 9);
  EXPECT_EQ(WhatIsWrong(Say(large.data(), large.size())), "a message too long");
  hello.header.magic = 1;
  EXPECT_EQ(WhatIsWrong(Say(hello)), "a message of another protocol");
  hello = Make<attach::Hello>(MessageType::kHello);
  hello.header.version = 99;
  const auto message = Say(hello);
  ASSERT_TRUE(std::holds_alternative<AttachConnection::OtherVersion>(message));
  EXPECT_EQ(std::get<AttachConnection::OtherVersion>(message).version, 99);
}

TEST_F(AttachConnectionTest, OnlyAnAttachBringsDescriptors) {
  const auto request = Make<attach::AttachFeed>(MessageType::kAttachFeed);
  const auto message = Say(&request, sizeof(request),
                           {client_.get(), client_.get(), client_.get()});
  EXPECT_TRUE(std::holds_alternative<attach::AttachFeed>(message));
  EXPECT_FALSE(connection_->lost_descriptors());
  EXPECT_EQ(connection_->TakeDescriptors().size(), 3);
  EXPECT_EQ(connection_->TakeDescriptors().size(), 0);

  const auto hello = Make<attach::Hello>(MessageType::kHello);
  EXPECT_EQ(WhatIsWrong(Say(&hello, sizeof(hello), {client_.get()})),
            "descriptors");
  // They are the caller's to close.
  EXPECT_EQ(connection_->TakeDescriptors().size(), 1);

  ASSERT_TRUE(
      SendSeqpacket(client_.get(), &request, sizeof(request), {client_.get()}));
  EXPECT_EQ(WhatIsWrong(connection_->Receive(/*takes_descriptors=*/false)),
            "descriptors");
  EXPECT_EQ(connection_->TakeDescriptors().size(), 0);
}

// Which looks like the end of the connection.
TEST_F(AttachConnectionTest, DescriptorsOfAnEmptyMessageAreKept) {
  const char nothing = 0;
  EXPECT_TRUE(std::holds_alternative<AttachConnection::End>(
      Say(&nothing, 0, {client_.get()})));
  EXPECT_EQ(connection_->TakeDescriptors().size(), 1);
}

TEST_F(AttachConnectionTest, WhatItIsToldFitsItsRoom) {
  ASSERT_TRUE(connection_->SendRefused(
      absl::PermissionDeniedError(std::string(1000, 'x'))));
  const auto refused = Hear<attach::Refused>();
  EXPECT_EQ(refused.header.type, MessageType::kRefused);
  EXPECT_EQ(refused.status_code,
            static_cast<uint32_t>(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(refused.reason, StrEq(std::string(attach::kTextBytes - 1, 'x')));
  ASSERT_TRUE(connection_->SendGoodbye(attach::GoodbyeCode::kUnloaded, "gone"));
  const auto goodbye = Hear<attach::Goodbye>();
  EXPECT_EQ(goodbye.header.type, MessageType::kGoodbye);
  EXPECT_EQ(goodbye.code, attach::GoodbyeCode::kUnloaded);
  EXPECT_THAT(goodbye.reason, StrEq("gone"));
}

TEST_F(AttachConnectionTest, AClientThatDoesNotTakeItIsNotWaitedFor) {
  int num_sent = 0;
  while (num_sent < 100'000 &&
         connection_->SendGoodbye(attach::GoodbyeCode::kDraining, "")) {
    ++num_sent;
  }
  EXPECT_GT(num_sent, 0);
  EXPECT_LT(num_sent, 100'000);
}

}  // namespace
}  // namespace datasetd
