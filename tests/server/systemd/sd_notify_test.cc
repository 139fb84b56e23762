#include "server/systemd/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file_descriptor.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

// Of a manager that does not read: the queue is full, and nothing blocks.
TEST(SdNotifyTest, AFullQueueIsReportedAndDoesNotBlock) {
  const testing::TempDir directory(testing::TempDir::Place::kShortPath);
  const std::string path = directory.File("notify");
  const FileDescriptor manager(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(bind(manager.get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  int num_sent = 0;
  while (SdNotify("STATUS=x") && num_sent < 100000) ++num_sent;
  EXPECT_GT(num_sent, 0);
  EXPECT_LT(num_sent, 100000);
  char data[16];
  ASSERT_GT(recv(manager.get(), data, sizeof(data), 0), 0);
  EXPECT_TRUE(SdNotify("READY=1"));
  EXPECT_FALSE(SdNotify("READY=1"));
  unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(SdNotify("READY=1"));
}

}  // namespace
}  // namespace datasetd
