#include "server/systemd/server_socket.h"

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

class ServerSocketTest : public ::testing::Test {
 protected:
  ServerSocketTest() {
    config_.set_socket_path(dir_.File("d.sock"));
    config_.set_socket_mode("0640");
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }

  TempDir dir_{TempDir::Place::kShortPath};
  const std::string link_ = dir_.File("attach.sock");
  v1::Config config_;
};

TEST_F(ServerSocketTest, OneDaemonForEachSocket) {
  auto first = ServerSocket::Lock(config_, std::nullopt);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(config_.socket_path())));
  first->reset();
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt), IsOk());
}

TEST_F(ServerSocketTest, ItsFilesHaveTheirRightsAndGoWithIt) {
  {
    const auto socket = ServerSocket::Lock(config_, std::nullopt);
    ASSERT_THAT(socket, IsOk());
    const auto listener = (*socket)->Listen();
    ASSERT_THAT(listener, IsOk());
    EXPECT_EQ(ModeOf(config_.socket_path()), 0640);
    EXPECT_EQ(std::filesystem::read_symlink(link_), "d.sock");
  }
  EXPECT_FALSE(std::filesystem::exists(config_.socket_path()));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(link_)));
}

TEST_F(ServerSocketTest, NobodyConnectsBeforeItIsPrepared) {
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

TEST_F(ServerSocketTest, WhoIsRefusedRemovesNothing) {
  const auto first = ServerSocket::Lock(config_, std::nullopt);
  ASSERT_THAT(first, IsOk());
  const auto listener = (*first)->Listen();
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
  EXPECT_TRUE(std::filesystem::exists(link_));
}

TEST_F(ServerSocketTest, AGroupThatIsNotThereIsNamed) {
  config_.set_socket_group("no-such-group-here");
  const auto socket = ServerSocket::Lock(config_, std::nullopt);
  ASSERT_THAT(socket, IsOk());
  EXPECT_THAT((*socket)->Listen(), StatusIs(absl::StatusCode::kNotFound,
                                            HasSubstr("'no-such-group-here'")));
}

TEST_F(ServerSocketTest, AnotherUsersLinkIsNotFollowed) {
  const std::string target = dir_.File("target");
  std::filesystem::create_symlink(target, config_.socket_path() + ".lock");
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("it is a symbolic link")));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(ServerSocketTest, AFileThatIsNoSocketIsNotReplaced) {
  std::ofstream(config_.socket_path()) << "text";
  std::ofstream(link_) << "other";
  {
    const auto socket = ServerSocket::Lock(config_, std::nullopt);
    ASSERT_THAT(socket, IsOk());
    EXPECT_THAT((*socket)->Listen(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("is no socket")));
  }
  EXPECT_EQ(std::filesystem::file_size(config_.socket_path()), 4);
  EXPECT_EQ(std::filesystem::file_size(link_), 5);
}

TEST_F(ServerSocketTest, TheSocketOfAnotherListenerIsLeft) {
  // As systemd's, while its service is stopped.
  const auto listener = ListenUnix(config_.socket_path(), SOCK_SEQPACKET);
  ASSERT_THAT(listener, IsOk());
  // A start that fails before it listens.
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt), IsOk());
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
  // One that replaced the daemon's.
  auto socket = ServerSocket::Lock(config_, std::nullopt);
  ASSERT_THAT(socket, IsOk());
  const auto replaced = (*socket)->Listen();
  ASSERT_THAT(replaced, IsOk());
  const auto other = ListenUnix(config_.socket_path(), SOCK_SEQPACKET);
  ASSERT_THAT(other, IsOk());
  socket->reset();
  EXPECT_TRUE(std::filesystem::exists(config_.socket_path()));
}

TEST_F(ServerSocketTest, ADirectoryThatIsNotThereIsNamed) {
  config_.set_socket_path(dir_.File("none/d.sock"));
  EXPECT_THAT(ServerSocket::Lock(config_, std::nullopt),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("does the directory of 'socket_path'")));
}

TEST_F(ServerSocketTest, WhatWasPassedIsUsedAndLeft) {
  FileDescriptor passed(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int number = passed.get();
  ActivatedSocket activated = {std::move(passed), config_.socket_path()};
  std::ofstream(config_.socket_path()) << "";
  const mode_t mode = ModeOf(config_.socket_path());
  {
    const auto socket = ServerSocket::Lock(config_, std::move(activated));
    ASSERT_THAT(socket, IsOk());
    const auto listener = (*socket)->Listen();
    ASSERT_THAT(listener, IsOk());
    EXPECT_EQ(listener->get(), number);
  }
  ASSERT_TRUE(std::filesystem::exists(config_.socket_path()));
  EXPECT_EQ(ModeOf(config_.socket_path()), mode);
}

TEST_F(ServerSocketTest, WhatWasPassedMustBeWhatIsConfigured) {
  const ActivatedSocket activated = {FileDescriptor(), "/run/elsewhere.sock"};
  EXPECT_THAT(CheckPath(activated, config_.socket_path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(config_.socket_path()),
                             HasSubstr("/run/elsewhere.sock"),
                             HasSubstr("datasetd.socket"))));
}

}  // namespace
}  // namespace datasetd
