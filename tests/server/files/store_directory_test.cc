#include "server/files/store_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scoped_unprivileged.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::ScopedUnprivileged;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

class StoreDirectoryTest : public ::testing::Test {
 protected:
  StoreDirectoryTest() : path_(parent_.File("store")) {
    auto opened = OpenStoreDirectory(path_);
    EXPECT_THAT(opened, IsOk());
    directory_ = *std::move(opened);
  }
  mode_t ModeOf(const std::string& name) {
    struct stat status;
    EXPECT_EQ(stat((path_ + "/" + name).c_str(), &status), 0);
    return status.st_mode & 0777;
  }

  TempDir parent_;
  std::string path_;
  std::unique_ptr<StoreDirectory> directory_;
};

TEST_F(StoreDirectoryTest, WhatIsWrittenIsReadAndForTheUserAlone) {
  ASSERT_THAT(WriteStored(*directory_, "a", Bytes("first")), IsOk());
  ASSERT_THAT(WriteStored(*directory_, "a", Bytes("second")), IsOk());
  EXPECT_EQ(*ReadStored(*directory_, "a", 100), "second");
  EXPECT_EQ(ModeOf("a"), 0600u);
  EXPECT_EQ(ModeOf("."), 0700u);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/a.tmp"));
  EXPECT_THAT(ReadStored(*directory_, "a", 5),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/a"), HasSubstr("6"))));
  EXPECT_THAT(ReadStored(*directory_, "b", 5),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/b")));
}

TEST_F(StoreDirectoryTest, OneDaemonAtATime) {
  EXPECT_THAT(OpenStoreDirectory(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path_), HasSubstr("another"))));
  directory_.reset();
  EXPECT_THAT(OpenStoreDirectory(path_), IsOk());
}

TEST_F(StoreDirectoryTest, ADirectoryThatOthersMayWriteIsRefused) {
  const std::string open = parent_.File("open");
  std::filesystem::create_directory(open);
  ASSERT_EQ(chmod(open.c_str(), 0770), 0);
  EXPECT_THAT(OpenStoreDirectory(open),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(open), HasSubstr("0770"))));
  EXPECT_THAT(OpenStoreDirectory(parent_.File("no/parent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("parent")));
}

TEST_F(StoreDirectoryTest, LinksAndOtherThingsAreNotFiles) {
  std::ofstream(parent_.File("secret")) << "secret";
  std::filesystem::create_symlink(parent_.File("secret"), path_ + "/link");
  std::filesystem::create_directory(path_ + "/directory");
  ASSERT_EQ(mkfifo((path_ + "/fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "directory", "fifo"}) {
    EXPECT_THAT(ReadStored(*directory_, name, 100),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(name)));
  }
  // The lock, and nothing else.
  ASSERT_THAT(directory_->List(), IsOk());
  EXPECT_EQ(directory_->List()->size(), 1u);
}

// A file server refuses a file, for example, while a ticket has expired.
TEST_F(StoreDirectoryTest, AFileThatMayNotBeReadNowIsUnavailable) {
  ASSERT_THAT(WriteStored(*directory_, "a", Bytes("first")), IsOk());
  ASSERT_EQ(chmod((path_ + "/a").c_str(), 0), 0);
  const ScopedUnprivileged without;
  EXPECT_THAT(directory_->Open("a"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("/a"), HasSubstr("denied"))));
}

TEST_F(StoreDirectoryTest, FilesAreListedTouchedAndRemoved) {
  ASSERT_THAT(WriteStored(*directory_, "a", Bytes("abc")), IsOk());
  std::filesystem::last_write_time(path_ + "/a",
                                   std::filesystem::file_time_type::min());
  ASSERT_THAT(directory_->Touch("a"), IsOk());
  const auto files = directory_->List();
  ASSERT_THAT(files, IsOk());
  for (const FileInfo& file : *files) {
    if (file.path != "a") continue;
    EXPECT_EQ(file.size_bytes, 3);
    EXPECT_GT(file.mtime_nanoseconds, 0);
  }
  ASSERT_THAT(directory_->Remove("a"), IsOk());
  EXPECT_THAT(directory_->Remove("a"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/a")));
  EXPECT_GT(*directory_->FreeBytes(), 0);
}

TEST_F(StoreDirectoryTest, FilesTouchedInTurnAreInOrder) {
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(WriteStored(*directory_, name, Bytes("abc")), IsOk());
  }
  for (int i = 0; i < 100; ++i) {
    for (const char* name : {"a", "b"}) {
      ASSERT_THAT(directory_->Touch(name), IsOk());
    }
    EXPECT_LT(std::filesystem::last_write_time(path_ + "/a"),
              std::filesystem::last_write_time(path_ + "/b"));
  }
}

}  // namespace
}  // namespace datasetd
