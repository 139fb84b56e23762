#include "server/order/order_arrays.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sealed_memory.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::kArraySeals;
using ::datasetd::testing::SealedMemory;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;
using enum absl::StatusCode;

class OrderArraysTest : public ::testing::Test {
 protected:
  // One array of as many numbers.
  explicit OrderArraysTest(int64_t size = 3) {
    arrays_.Add<int64_t>("numbers", size, [this](auto block) {
      numbers_.insert(numbers_.end(), block.begin(), block.end());
      return absl::OkStatus();
    });
  }
  absl::Status Check(FileDescriptor fd) {
    std::vector<FileDescriptor> descriptors;
    descriptors.push_back(std::move(fd));
    return arrays_.Check(descriptors);
  }

  OrderArrays arrays_{Reservation()};
  std::vector<int64_t> numbers_;
};

TEST_F(OrderArraysTest, ArraysAreReadInBlocksAndInOrder) {
  std::vector<int64_t> sent(100'000);
  for (size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<int64_t>(7 * i);
  OrderArrays arrays{Reservation()};
  std::vector<int64_t> read;
  std::vector<double> others;
  arrays.Add<int64_t>("numbers", 100'000, [&](auto block) {
    read.insert(read.end(), block.begin(), block.end());
    return absl::OkStatus();
  });
  arrays.Add<double>("others", 2, [&](auto block) {
    others.assign(block.begin(), block.end());
    return absl::OkStatus();
  });
  bool is_checked = false;
  arrays.OnRead([&] {
    is_checked = read.size() == 100'000 && others.size() == 2;
    return absl::OkStatus();
  });
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(SealedMemory<int64_t>(sent));
  descriptors.push_back(SealedMemory<double>({0.5, 2}));
  EXPECT_FALSE(arrays.is_read());
  ASSERT_THAT(arrays.Check(descriptors), IsOk());
  ASSERT_THAT(arrays.Read(descriptors), IsOk());
  EXPECT_TRUE(arrays.is_read());
  EXPECT_EQ(read, sent);
  EXPECT_THAT(others, ::testing::ElementsAre(0.5, 2));
  EXPECT_TRUE(is_checked);
}

TEST_F(OrderArraysTest, AHoleIsZerosAndTakesNoMemory) {
  FileDescriptor fd(memfd_create("hole", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 24), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kArraySeals), 0);
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(std::move(fd));
  ASSERT_THAT(arrays_.Check(descriptors), IsOk());
  ASSERT_THAT(arrays_.Read(descriptors), IsOk());
  EXPECT_THAT(numbers_, ::testing::ElementsAre(0, 0, 0));
  struct stat status;
  ASSERT_EQ(fstat(descriptors[0].get(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST_F(OrderArraysTest, WhatIsNotSealedIsRefused) {
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    EXPECT_THAT(Check(SealedMemory<int64_t>({1, 2, 3}, kArraySeals & ~seal)),
                StatusIs(kInvalidArgument,
                         HasSubstr("numbers: its descriptor is not of a memfd "
                                   "that has F_SEAL_SHRINK")));
  }
}

// The seal itself sees to it that no mapping can write after the check.
TEST_F(OrderArraysTest, AWritableMappingCannotBeSealed) {
  FileDescriptor fd = SealedMemory<int64_t>({1, 2, 3}, /*seals=*/0);
  void* const page =
      mmap(nullptr, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, kArraySeals), -1);
  EXPECT_EQ(errno, EBUSY);
  munmap(page, 24);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kArraySeals), 0);
  EXPECT_EQ(mmap(nullptr, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(fd.get(), "x", 1, 0), -1);
  EXPECT_THAT(Check(std::move(fd)), IsOk());
}

TEST_F(OrderArraysTest, WhatIsNoMemfdIsRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const FileDescriptor other_end(ends[1]);
  std::vector<FileDescriptor> others;
  others.emplace_back(ends[0]);
  others.emplace_back(open("/proc/self/exe", O_RDONLY));
  others.emplace_back(open("/dev/shm", O_RDWR | O_TMPFILE, 0600));
  others.emplace_back(open("/dev/null", O_PATH));
  for (FileDescriptor& other : others) {
    EXPECT_THAT(Check(std::move(other)),
                StatusIs(kInvalidArgument, HasSubstr("not of a memfd")));
  }
}

TEST_F(OrderArraysTest, AnotherSizeIsRefused) {
  for (const size_t size : {0, 2, 4}) {
    EXPECT_THAT(
        Check(SealedMemory<int64_t>(std::vector<int64_t>(size))),
        StatusIs(kInvalidArgument,
                 HasSubstr(absl::StrCat("numbers: its memfd has ", 8 * size,
                                        " bytes; by the "
                                        "feed's options it has 24"))));
  }
}

TEST_F(OrderArraysTest, ADescriptorForWritingAloneIsRefused) {
  const FileDescriptor fd = SealedMemory<int64_t>({1, 2, 3});
  const std::string path = absl::StrCat("/proc/self/fd/", fd.get());
  EXPECT_THAT(Check(FileDescriptor(open(path.c_str(), O_WRONLY))),
              StatusIs(kInvalidArgument, HasSubstr("cannot be read")));
}

TEST_F(OrderArraysTest, HugePagesAreRefused) {
  FileDescriptor fd(memfd_create("huge", MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.has_value()) GTEST_SKIP() << "no huge pages here";
  ASSERT_EQ(ftruncate(fd.get(), 2 << 20), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kArraySeals), 0);
  EXPECT_THAT(Check(std::move(fd)),
              StatusIs(kInvalidArgument, HasSubstr("huge pages")));
}

TEST_F(OrderArraysTest, AnotherNumberOfDescriptorsIsRefused) {
  EXPECT_THAT(arrays_.Check({}),
              StatusIs(kInvalidArgument,
                       HasSubstr("has 0 descriptors of arrays; the feed's "
                                 "options call for 1: numbers")));
  std::vector<FileDescriptor> two;
  two.push_back(SealedMemory<int64_t>({1, 2, 3}));
  two.push_back(SealedMemory<int64_t>({1, 2, 3}));
  EXPECT_THAT(arrays_.Check(two), StatusIs(kInvalidArgument));
  OrderArrays none{Reservation()};
  EXPECT_TRUE(none.is_empty());
  EXPECT_THAT(none.Check({}), IsOk());
  EXPECT_THAT(none.Check(two),
              StatusIs(kInvalidArgument, HasSubstr("call for 0")));
}

TEST_F(OrderArraysTest, ACancelledReadEnds) {
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(SealedMemory<int64_t>({1, 2, 3}));
  arrays_.Cancel();
  EXPECT_THAT(arrays_.Read(descriptors), StatusIs(kCancelled));
  EXPECT_FALSE(arrays_.is_read());
}

}  // namespace
}  // namespace datasetd
