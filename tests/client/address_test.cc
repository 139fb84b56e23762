#include "client/connection/address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_attach_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FakeAttachServer;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum absl::StatusCode;

// A user who has no daemon yet.
class AddressTest : public ::testing::Test {
 protected:
  AddressTest() {
    unsetenv(kAddressVariable);
    chmod(runtime_.path().c_str(), 0700);
    setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
  }
  ~AddressTest() override { unsetenv("XDG_RUNTIME_DIR"); }

  // Returns the socket of a daemon that started so many hours ago, and listens
  // unless it has ended.
  std::string Add(const std::string& name, int hours, bool listens = true) {
    const std::filesystem::path directory = SharedDirectoryPrefix() + name;
    std::filesystem::create_directory(directory);
    chmod(directory.c_str(), 0700);
    const std::string socket = directory / "datasetd.sock";
    if (listens) {
      servers_.push_back(std::make_unique<FakeAttachServer>(socket));
    } else {
      std::ofstream{socket};
    }
    std::filesystem::last_write_time(
        socket, std::filesystem::file_time_type::clock::now() -
                    std::chrono::hours(hours));
    return socket;
  }

  const TempDir runtime_{TempDir::Place::kShortPath};
  std::vector<std::unique_ptr<FakeAttachServer>> servers_;
};

TEST_F(AddressTest, ArgumentVariableDefault) {
  auto address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/run/datasetd/datasetd.sock");
  EXPECT_THAT(address->found, IsEmpty());
  setenv(kAddressVariable, "unix:/a/b.sock", 1);
  address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/a/b.sock");
  address = ResolveAddress("unix:///c/d.sock");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/c/d.sock");
}

TEST_F(AddressTest, UnusableAddresses) {
  EXPECT_THAT(
      ResolveAddress("localhost:50051"),
      StatusIs(kInvalidArgument, HasSubstr("looks like a host and a port")));
  EXPECT_THAT(ResolveAddress("http://host:80"),
              StatusIs(kInvalidArgument, HasSubstr("http://host:80")));
  EXPECT_THAT(ResolveAddress("/" + std::string(120, 'x') + "/d.sock"),
              StatusIs(kInvalidArgument, HasSubstr("107")));
}

TEST_F(AddressTest, TheLatestDaemonOfThisUsersJobsThatListens) {
  Add("ended", 0, /*listens=*/false);
  const std::string old = Add("old", 3);
  const std::string latest = Add("latest", 2);
  const std::string of_command = Add("run1", 1);
  EXPECT_TRUE(absl::StartsWith(old, runtime_.File("datasetd-")));
  const auto address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, latest);
  EXPECT_THAT(address->found, ElementsAre(latest, old, of_command));
  // Who names one gets that one.
  EXPECT_THAT(ResolveAddress(old)->found, IsEmpty());
  setenv(kAddressVariable, old.c_str(), 1);
  EXPECT_EQ(ResolveAddress("")->socket_path, old);
  unsetenv(kAddressVariable);
}

TEST_F(AddressTest, ADirectoryThatOthersMayEnterIsNotSearched) {
  const std::filesystem::path directory =
      std::filesystem::path(Add("a", 1)).parent_path();
  chmod(directory.c_str(), 0755);
  EXPECT_THAT(FindSharedDaemons(), IsEmpty());
  EXPECT_THAT(ResolveAddress("")->found, IsEmpty());
  // Nor one that is a link to this user's.
  chmod(directory.c_str(), 0700);
  const std::string moved = runtime_.File("moved");
  std::filesystem::rename(directory, moved);
  std::filesystem::create_symlink(moved, directory);
  EXPECT_THAT(FindSharedDaemons(), IsEmpty());
}

TEST_F(AddressTest, SharedDaemonsAreInTmpWithoutARuntimeDirectory) {
  const std::string in_tmp = absl::StrCat("/tmp/datasetd-", geteuid(), "-");
  chmod(runtime_.path().c_str(), 0755);
  EXPECT_EQ(SharedDirectoryPrefix(), in_tmp);
  const std::string too_long = runtime_.File(std::string(50, 'x'));
  std::filesystem::create_directory(too_long);
  chmod(too_long.c_str(), 0700);
  setenv("XDG_RUNTIME_DIR", too_long.c_str(), 1);
  EXPECT_EQ(SharedDirectoryPrefix(), in_tmp);
}

}  // namespace
}  // namespace datasetd::client
