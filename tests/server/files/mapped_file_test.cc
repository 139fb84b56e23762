#include "server/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/files/store_directory.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kFileBytes = 64 * kPageBytes;

class MappedFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, int64_t size_bytes) {
    const std::string path = directory_.File(name);
    std::ofstream(path) << std::string(static_cast<size_t>(size_bytes), 'x');
    return path;
  }
  static absl::StatusOr<std::unique_ptr<MappedFile>> Map(
      const std::string& path, int64_t size_bytes, bool is_writable = false) {
    return MappedFile::Map(FileDescriptor(open(path.c_str(), O_RDWR)), path,
                           size_bytes, is_writable);
  }

  TempDir directory_;
};

TEST_F(MappedFileTest, HasTheBytesOfTheFile) {
  const auto file = Map(Write("a", kFileBytes), kFileBytes);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->size_bytes(), kFileBytes);
  EXPECT_EQ((*file)->data()[0], 'x');
  EXPECT_EQ((*file)->data()[kFileBytes - 1], 'x');
  // Any part, whatever its alignment.
  (*file)->Prefetch((*file)->data() + 5, kFileBytes - 5);
  EXPECT_THAT((*file)->status(), IsOk());
  EXPECT_THAT(Map(Write("short", 10), 11),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("short"), HasSubstr("10"),
                             HasSubstr("expected 11"))));
}

TEST_F(MappedFileTest, ChangesAreTheFilesAndItIsCutAtTheEnd) {
  const std::string path = Write("a", kFileBytes);
  const auto file = Map(path, kFileBytes, /*is_writable=*/true);
  ASSERT_THAT(file, IsOk());
  (*file)->data()[3] = 'y';
  EXPECT_THAT((*file)->Finish(5), IsOk());
  EXPECT_EQ(std::filesystem::file_size(path), 5u);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "xxxyx");
}

TEST_F(MappedFileTest, AFileThatIsCutReadsAsZerosAndSaysSo) {
  const std::string path = Write("cut", kFileBytes);
  const auto cut = Map(path, kFileBytes);
  const auto whole = Map(Write("whole", kFileBytes), kFileBytes);
  ASSERT_THAT(cut, IsOk());
  ASSERT_THAT(whole, IsOk());
  std::filesystem::resize_file(path, kPageBytes);
  // Nobody has noticed.
  EXPECT_EQ((*cut)->data()[0], 'x');
  EXPECT_THAT((*cut)->status(), IsOk());

  EXPECT_EQ((*cut)->data()[2 * kPageBytes], 0);
  EXPECT_THAT((*cut)->status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/cut"), HasSubstr("cannot be read"))));
  // All of it, in one mapping.
  EXPECT_EQ((*cut)->data()[0], 0);
  EXPECT_EQ((*whole)->data()[kFileBytes - 1], 'x');
  EXPECT_THAT((*whole)->status(), IsOk());
}

TEST_F(MappedFileTest, SeveralThreadsMeetTheSameFault) {
  const std::string path = Write("a", kFileBytes);
  const auto file = Map(path, kFileBytes);
  ASSERT_THAT(file, IsOk());
  std::filesystem::resize_file(path, 0);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t page = t; page < kFileBytes / kPageBytes; ++page) {
        EXPECT_EQ((*file)->data()[page * kPageBytes], 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT((*file)->status(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(MappedFileTest, AMappingThatIsGoneIsForgotten) {
  for (int i = 0; i < 3; ++i) {
    const std::string path = Write("a", kFileBytes);
    const auto file = Map(path, kFileBytes);
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ((*file)->data()[kFileBytes - 1], 'x');
    EXPECT_THAT((*file)->status(), IsOk());
    std::filesystem::resize_file(path, 0);
    EXPECT_EQ((*file)->data()[kFileBytes - 1], 0);
    EXPECT_THAT((*file)->status(), StatusIs(absl::StatusCode::kDataLoss));
  }
}

using MappedFileDeathTest = MappedFileTest;

TEST_F(MappedFileDeathTest, OtherBusErrorsAreNotHidden) {
  ASSERT_THAT(Map(Write("a", kFileBytes), kFileBytes), IsOk());
  const std::string path = Write("b", kFileBytes);
  const int fd = open(path.c_str(), O_RDONLY);
  const auto* const data = static_cast<const volatile char*>(
      mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, fd, 0));
  std::filesystem::resize_file(path, 0);
  EXPECT_EXIT((void)data[0], ::testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedStoreTest, FilesAreMadeAndMappedAgain) {
  TempDir parent;
  auto directory = OpenStoreDirectory(parent.File("store"));
  ASSERT_THAT(directory, IsOk());
  {
    const auto made = (*directory)->CreateMapped("a", kFileBytes);
    ASSERT_THAT(made, IsOk());
    EXPECT_EQ((*made)->data()[kFileBytes - 1], 0);
    (*made)->data()[0] = 7;
    EXPECT_THAT((*made)->Finish(kPageBytes), IsOk());
  }
  const auto mapped = (*directory)->Map("a");
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ((*mapped)->size_bytes(), kPageBytes);
  EXPECT_EQ((*mapped)->data()[0], 7);
  EXPECT_THAT((*directory)->Map("b"), StatusIs(absl::StatusCode::kNotFound));
  std::ofstream(parent.File("store/empty"));
  EXPECT_THAT((*directory)->Map("empty"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is empty")));
  std::filesystem::create_symlink("a", parent.File("store/link"));
  EXPECT_THAT((*directory)->Map("link"),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

}  // namespace
}  // namespace datasetd
