#include "server/files/file_system.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/scoped_unprivileged.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::ScopedUnprivileged;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Keep(const FileInfo&) { return absl::OkStatus(); }

class FileSystemTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short: a socket's path has a limit of 108.
    char base[] = "/tmp/file_system_test.XXXXXX";
    ASSERT_NE(mkdtemp(base), nullptr);
    base_ = base;
    root_ = absl::StrCat(base_, "/root");
    std::filesystem::create_directories(absl::StrCat(root_, "/sub/deep"));
    chmod(root_.c_str(), 0755);
    Write(absl::StrCat(root_, "/a.bin"), "0123456789");
    Write(absl::StrCat(root_, "/sub/b.bin"), "b");
    Write(absl::StrCat(base_, "/secret"), "secret");
    auto files = CreateRootedFileSystem({root_});
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  void TearDown() override { std::filesystem::remove_all(base_); }

  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, absl::StrCat(root_, "/", name));
  }
  absl::Status OpenStatus(const std::string& path) {
    return files_->Open(path).status();
  }
  std::string InRoot(const std::string& name) {
    return absl::StrCat(root_, "/", name);
  }

  std::string base_;
  std::string root_;
  std::unique_ptr<FileSystem> files_;
};

TEST_F(FileSystemTest, ReadsAtAnyOffset) {
  auto file = files_->Open(InRoot("a.bin"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->info().path, InRoot("a.bin"));
  EXPECT_EQ((*file)->info().size_bytes, 10);
  EXPECT_FALSE((*file)->info().is_directory);
  uint8_t buffer[4];
  ASSERT_EQ((*file)->ReadAt(3, absl::MakeSpan(buffer)).value(), 4);
  EXPECT_EQ(std::string(buffer, buffer + 4), "3456");
  EXPECT_EQ((*file)->ReadAt(8, absl::MakeSpan(buffer)).value(), 2);
  EXPECT_EQ((*file)->ReadAt(99, absl::MakeSpan(buffer)).value(), 0);
}

TEST_F(FileSystemTest, ReadExactlyNamesPathOffsetWantedAndFound) {
  auto file = files_->Open(InRoot("a.bin"));
  ASSERT_TRUE(file.ok());
  uint8_t buffer[4];
  EXPECT_TRUE(ReadExactly(**file, 6, absl::MakeSpan(buffer)).ok());
  const absl::Status status = ReadExactly(**file, 7, absl::MakeSpan(buffer));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            absl::StrCat(InRoot("a.bin"),
                         ": ends early: wanted 4 bytes at offset 7, found 3"));
}

TEST_F(FileSystemTest, StatsFilesAndDirectories) {
  auto file = files_->Stat(InRoot("a.bin"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size_bytes, 10);
  struct stat status;
  ASSERT_EQ(stat(InRoot("a.bin").c_str(), &status), 0);
  EXPECT_EQ(file->mtime_nanoseconds,
            status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
  EXPECT_TRUE(files_->Stat(root_)->is_directory);
  EXPECT_TRUE(files_->Stat(absl::StrCat(root_, "//sub/./"))->is_directory);
}

TEST_F(FileSystemTest, ListsSortedWithLinksFollowed) {
  Link("sub/b.bin", "link");
  Link("../secret", "out");
  Link("nowhere", "dangling");
  auto entries = files_->List(absl::StrCat(root_, "/"), Keep);
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::vector<std::string> paths;
  for (const FileInfo& info : *entries) paths.push_back(info.path);
  ASSERT_THAT(paths, ElementsAre(InRoot("a.bin"), InRoot("dangling"),
                                 InRoot("link"), InRoot("out"), InRoot("sub")));
  EXPECT_EQ((*entries)[0].size_bytes, 10);
  EXPECT_EQ((*entries)[1].size_bytes, 0);
  EXPECT_EQ((*entries)[2].size_bytes, 1);
  EXPECT_EQ((*entries)[3].size_bytes, 0);
  EXPECT_TRUE((*entries)[4].is_directory);
}

TEST_F(FileSystemTest, ALinkThatCannotBeFollowedNowIsAnErrorOfList) {
  Link("sub", "link");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // One descriptor is left, for the directory.
  const int next = dup(0);
  close(next);
  const rlimit low = {.rlim_cur = static_cast<rlim_t>(next) + 1,
                      .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const absl::Status status = files_->List(root_, Keep).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("/root/link: Too many open files")));
  EXPECT_TRUE(files_->List(root_, Keep).ok());
}

TEST_F(FileSystemTest, AListEndsWithTheFirstErrorOfItsCaller) {
  int num_entries = 0;
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(files_
                ->List(root_,
                       [&](const FileInfo& entry) {
                         ++num_entries;
                         EXPECT_THAT(entry.path, HasSubstr(root_ + "/"));
                         return full;
                       })
                .status(),
            full);
  EXPECT_EQ(num_entries, 1);
}

TEST_F(FileSystemTest, ListOfAFileIsInvalid) {
  EXPECT_THAT(files_->List(InRoot("a.bin"), Keep),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a directory")));
}

TEST_F(FileSystemTest, MissingIsNotFoundAndSaysWhatToDo) {
  const absl::Status status = OpenStatus(InRoot("none"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(InRoot("none")));
  EXPECT_THAT(message, HasSubstr("as seen by the daemon"));
  EXPECT_THAT(message, HasSubstr("push the samples"));
  EXPECT_THAT(message, HasSubstr("data_roots"));
  EXPECT_THAT(message, HasSubstr("datasetctl run"));
  EXPECT_EQ(OpenStatus(InRoot("a.bin/x")).code(), absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, MissingBelowTheRootOfAllIsNotTheRootsFault) {
  const auto all = CreateRootedFileSystem({"/"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(
      (*all)->Open(InRoot("none")).status(),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr(InRoot("none")), Not(HasSubstr("data_roots")))));
}

TEST_F(FileSystemTest, OutsideTheRootsIsDenied) {
  for (const std::string& path :
       {absl::StrCat(base_, "/secret"), std::string("/etc/passwd"),
        absl::StrCat(root_, "2/x"), InRoot("../secret"),
        InRoot("sub/../../secret"), InRoot("/..//../etc/passwd")}) {
    const absl::Status status = OpenStatus(path);
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(root_)))
        << path;
    EXPECT_EQ(files_->Stat(path).status().code(),
              absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(files_->List(path, Keep).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(FileSystemTest, DotDotThatStaysInsideIsAllowed) {
  EXPECT_TRUE(OpenStatus(InRoot("sub/deep/../b.bin")).ok());
}

TEST_F(FileSystemTest, LinksMayNotLeaveTheRoot) {
  Link("../secret", "relative");
  Link(absl::StrCat(base_, "/secret"), "absolute");
  Link("..", "parent");
  Link("/proc/self/root", "magic");
  Link("loop", "loop");
  Link("sub/b.bin", "inside");
  for (const char* name :
       {"relative", "absolute", "parent/secret", "magic/etc/passwd", "loop"}) {
    EXPECT_EQ(OpenStatus(InRoot(name)).code(),
              absl::StatusCode::kPermissionDenied)
        << name;
  }
  EXPECT_TRUE(OpenStatus(InRoot("inside")).ok());
}

TEST_F(FileSystemTest, MagicLinksAreRefused) {
  auto proc = CreateRootedFileSystem({"/proc"});
  ASSERT_TRUE(proc.ok()) << proc.status();
  EXPECT_TRUE((*proc)->Open("/proc/version").ok());
  EXPECT_EQ((*proc)->Stat("/proc/self/exe").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(FileSystemTest, RelativeAndNulPathsAreInvalid) {
  for (const std::string& path :
       {std::string("a.bin"), std::string(), InRoot(std::string("a\0b", 3))}) {
    EXPECT_EQ(OpenStatus(path).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(FileSystemTest, OnlyRegularFilesOpenAndNothingBlocks) {
  ASSERT_EQ(mkfifo(InRoot("fifo").c_str(), 0644), 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  InRoot("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(
      bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  for (const char* name : {"fifo", "socket", "sub"}) {
    EXPECT_THAT(OpenStatus(InRoot(name)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("expected a regular file")))
        << name;
  }
  EXPECT_EQ(files_->Stat(InRoot("fifo")).status().code(),
            absl::StatusCode::kInvalidArgument);
  close(listener);
  auto devices = CreateRootedFileSystem({"/dev"});
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ((*devices)->Open("/dev/zero").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileSystemTest, UnreadableIsDeniedAndNamesTheUser) {
  chmod(InRoot("a.bin").c_str(), 0000);
  const ScopedUnprivileged unprivileged;
  EXPECT_TRUE(OpenStatus(InRoot("sub/b.bin")).ok());
  EXPECT_THAT(OpenStatus(InRoot("a.bin")),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr(absl::StrCat("uid ", geteuid()))));
}

TEST_F(FileSystemTest, TheLongestRootDecides) {
  Link("../a.bin", "sub/up");
  EXPECT_TRUE(OpenStatus(InRoot("sub/up")).ok());
  auto nested = CreateRootedFileSystem({root_, InRoot("sub")});
  ASSERT_TRUE(nested.ok());
  EXPECT_EQ((*nested)->Open(InRoot("sub/up")).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE((*nested)->Open(InRoot("sub/b.bin")).ok());
  EXPECT_TRUE((*nested)->Open(InRoot("a.bin")).ok());
}

TEST_F(FileSystemTest, TheRootMayBeSlash) {
  auto slash = CreateRootedFileSystem({"/"});
  ASSERT_TRUE(slash.ok());
  EXPECT_TRUE((*slash)->Open(InRoot("a.bin")).ok());
  EXPECT_TRUE((*slash)->Stat("/")->is_directory);
  // A link that leaves every other root.
  Link(InRoot("sub"), "absolute");
  EXPECT_EQ(OpenStatus(InRoot("absolute/b.bin")).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE((*slash)->Open(InRoot("absolute/b.bin")).ok());
  auto entries = (*slash)->List("/", Keep);
  ASSERT_TRUE(entries.ok());
  ASSERT_FALSE(entries->empty());
  EXPECT_NE(entries->front().path.substr(0, 2), "//");
}

TEST_F(FileSystemTest, BadRootsAreErrorsOfCreate) {
  EXPECT_EQ(CreateRootedFileSystem({InRoot("none")}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(CreateRootedFileSystem({"relative"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateRootedFileSystem({InRoot("sub/..")}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(CreateRootedFileSystem({InRoot("a.bin")}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("must be a directory")));
}

TEST_F(FileSystemTest, WithoutRootsNothingIsReadable) {
  auto none = CreateRootedFileSystem({});
  ASSERT_TRUE(none.ok());
  EXPECT_THAT((*none)->Open(InRoot("a.bin")),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("no data_roots")));
}

TEST_F(FileSystemTest, AFileThatShrinksAfterOpenIsDataLoss) {
  auto file = files_->Open(InRoot("a.bin"));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(InRoot("a.bin").c_str(), 2), 0);
  uint8_t buffer[10];
  EXPECT_EQ(ReadExactly(**file, 0, absl::MakeSpan(buffer)).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace datasetd
