#include "client/connection/address.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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
    std::filesystem::create_directory(shared_);
    chmod(shared_.c_str(), 0700);
  }
  ~AddressTest() override { unsetenv("XDG_RUNTIME_DIR"); }

  // Returns the socket of a daemon that started so many hours ago, and listens
  // unless it has ended.
  std::string Add(const std::string& name, int hours, bool listens = true) {
    const std::filesystem::path directory = shared_ / name;
    std::filesystem::create_directory(directory);
    const std::string socket = directory / "datasetd.sock";
    std::ofstream{socket};
    std::filesystem::last_write_time(
        socket, std::filesystem::file_time_type::clock::now() -
                    std::chrono::hours(hours));
    if (listens) {
      servers_.push_back(
          std::make_unique<FakeAttachServer>(directory / "attach.sock"));
    }
    return socket;
  }

  const TempDir runtime_{TempDir::Place::kShortPath};
  const std::filesystem::path shared_ = runtime_.path() / "datasetd-shared";
  std::vector<std::unique_ptr<FakeAttachServer>> servers_;
};

TEST_F(AddressTest, ArgumentVariableDefault) {
  auto address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/run/datasetd/datasetd.sock");
  EXPECT_EQ(address->attach_socket_path, "/run/datasetd/attach.sock");
  EXPECT_THAT(address->found, IsEmpty());
  setenv(kAddressVariable, "unix:/a/b.sock", 1);
  address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/a/b.sock");
  address = ResolveAddress("unix:///c/d.sock");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->target(), "unix:/c/d.sock");
  EXPECT_EQ(address->attach_socket_path, "/c/attach.sock");
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
  Add("0.1.0-ended", 0, /*listens=*/false);
  const std::string old = Add("0.1.0-old", 3);
  const std::string latest = Add("0.1.0-latest", 2);
  const std::string of_command = Add("run-job", 1);
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
  Add("0.1.0-a", 1);
  chmod(shared_.c_str(), 0755);
  EXPECT_THAT(FindDaemonsBelow(shared_.string()), IsEmpty());
  EXPECT_THAT(ResolveAddress("")->found, IsEmpty());
  // Nor one that is a link to this user's.
  chmod(shared_.c_str(), 0700);
  const std::string link = runtime_.File("link");
  std::filesystem::create_symlink(shared_, link);
  EXPECT_THAT(FindDaemonsBelow(link), IsEmpty());
}

}  // namespace
}  // namespace datasetd::client
