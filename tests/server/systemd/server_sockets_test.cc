#include "server/systemd/server_sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/attach/seqpacket.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ServerSocketsTest : public ::testing::Test {
 protected:
  ServerSocketsTest() {
    config_.set_socket_path(dir_.File("d.sock"));
    config_.set_attach_socket_path(dir_.File("a.sock"));
    config_.set_socket_mode("0640");
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }

  TempDir dir_{TempDir::Place::kShortPath};
  v1::Config config_;
};

TEST_F(ServerSocketsTest, OneDaemonForEachSocket) {
  auto first = ServerSockets::Lock(config_, std::nullopt);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(config_.socket_path())));
  // One of them is enough.
  v1::Config other = config_;
  other.set_socket_path(dir_.File("other.sock"));
  EXPECT_THAT(ServerSockets::Lock(other, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(config_.attach_socket_path())));
  first->reset();
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt), IsOk());
}

TEST_F(ServerSocketsTest, ItsFilesHaveTheirRightsAndGoWithIt) {
  {
    const auto sockets = ServerSockets::Lock(config_, std::nullopt);
    ASSERT_THAT(sockets, IsOk());
    const auto attach = (*sockets)->ListenAttach();
    ASSERT_THAT(attach, IsOk());
    const auto grpc = (*sockets)->ListenGrpc();
    ASSERT_THAT(grpc, IsOk());
    EXPECT_EQ(ModeOf(config_.socket_path()), 0640);
    EXPECT_EQ(ModeOf(config_.attach_socket_path()), 0640);
  }
  EXPECT_FALSE(std::filesystem::exists(config_.socket_path()));
  EXPECT_FALSE(std::filesystem::exists(config_.attach_socket_path()));
}

TEST_F(ServerSocketsTest, NobodyConnectsBeforeItIsPrepared) {
  const std::string path = config_.socket_path();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto connect_to_it = [&] {
    const FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)) == 0
               ? 0
               : errno;
  };
  int error = 0;
  const auto listener = ListenUnix(path, SOCK_STREAM, [&] {
    error = connect_to_it();
    return absl::OkStatus();
  });
  ASSERT_THAT(listener, IsOk());
  EXPECT_EQ(error, ECONNREFUSED);
  EXPECT_EQ(connect_to_it(), 0);
}

TEST_F(ServerSocketsTest, WhoIsRefusedRemovesNothing) {
  const auto first = ServerSockets::Lock(config_, std::nullopt);
  ASSERT_THAT(first, IsOk());
  const auto attach = (*first)->ListenAttach();
  ASSERT_THAT(attach, IsOk());
  const auto grpc = (*first)->ListenGrpc();
  ASSERT_THAT(grpc, IsOk());
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
  EXPECT_TRUE(std::filesystem::exists(config_.attach_socket_path()));
}

TEST_F(ServerSocketsTest, AGroupThatIsNotThereIsNamed) {
  config_.set_socket_group("no-such-group-here");
  const auto sockets = ServerSockets::Lock(config_, std::nullopt);
  ASSERT_THAT(sockets, IsOk());
  EXPECT_THAT(
      (*sockets)->ListenGrpc(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("'no-such-group-here'")));
}

TEST_F(ServerSocketsTest, AnotherUsersLinkIsNotFollowed) {
  const std::string target = dir_.File("target");
  std::filesystem::create_symlink(target, config_.socket_path() + ".lock");
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("it is a symbolic link")));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(ServerSocketsTest, AFileThatIsNoSocketIsNotReplaced) {
  std::ofstream(config_.socket_path()) << "text";
  std::ofstream(config_.attach_socket_path()) << "other";
  {
    const auto sockets = ServerSockets::Lock(config_, std::nullopt);
    ASSERT_THAT(sockets, IsOk());
    EXPECT_THAT((*sockets)->ListenAttach(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("is no socket")));
    EXPECT_THAT((*sockets)->ListenGrpc(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("is no socket")));
  }
  EXPECT_EQ(std::filesystem::file_size(config_.socket_path()), 4);
  EXPECT_EQ(std::filesystem::file_size(config_.attach_socket_path()), 5);
}

TEST_F(ServerSocketsTest, SocketsOfAnotherListenerAreLeft) {
  // As systemd's, while its service is stopped.
  const auto attach = ListenUnix(config_.attach_socket_path(), SOCK_SEQPACKET);
  ASSERT_THAT(attach, IsOk());
  const auto grpc = ListenUnix(config_.socket_path(), SOCK_STREAM);
  ASSERT_THAT(grpc, IsOk());
  // A start that fails before it listens.
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt), IsOk());
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
  EXPECT_TRUE(std::filesystem::exists(config_.attach_socket_path()));
  // One that replaced the daemon's.
  auto sockets = ServerSockets::Lock(config_, std::nullopt);
  ASSERT_THAT(sockets, IsOk());
  const auto replaced = (*sockets)->ListenGrpc();
  ASSERT_THAT(replaced, IsOk());
  const auto other = ListenUnix(config_.socket_path(), SOCK_STREAM);
  ASSERT_THAT(other, IsOk());
  sockets->reset();
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
}

TEST_F(ServerSocketsTest, ADirectoryThatIsNotThereIsNamed) {
  config_.set_socket_path(dir_.File("none/d.sock"));
  EXPECT_THAT(ServerSockets::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("does the directory of 'socket_path'")));
}

TEST_F(ServerSocketsTest, WhatWasPassedIsUsedAndLeft) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  ActivatedSockets activated;
  activated.grpc = FileDescriptor(ends[0]);
  activated.grpc_path = config_.socket_path();
  activated.attach = FileDescriptor(ends[1]);
  activated.attach_path = config_.attach_socket_path();
  std::ofstream(config_.socket_path()) << "";
  const mode_t mode = ModeOf(config_.socket_path());
  {
    const auto sockets = ServerSockets::Lock(config_, std::move(activated));
    ASSERT_THAT(sockets, IsOk());
    const auto attach = (*sockets)->ListenAttach();
    ASSERT_THAT(attach, IsOk());
    EXPECT_EQ(attach->get(), ends[1]);
    const auto grpc = (*sockets)->ListenGrpc();
    ASSERT_THAT(grpc, IsOk());
    EXPECT_EQ(grpc->get(), ends[0]);
  }
  ASSERT_TRUE(std::filesystem::exists(config_.socket_path()));
  EXPECT_EQ(ModeOf(config_.socket_path()), mode);
}

TEST_F(ServerSocketsTest, WhatWasPassedMustBeWhatIsConfigured) {
  ActivatedSockets activated;
  activated.grpc_path = config_.socket_path();
  activated.attach_path = "/run/elsewhere.sock";
  EXPECT_THAT(CheckPaths(activated, config_.socket_path(),
                         config_.attach_socket_path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("attach_socket_path"),
                             HasSubstr("/run/elsewhere.sock"),
                             HasSubstr("datasetd.socket"))));
}

}  // namespace
}  // namespace datasetd
