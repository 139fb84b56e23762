#include "server/readers/archives/tar_members.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/generated_data.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/tar_bytes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A file that counts what is read of it, and checks that reads go forwards.
class CountingFile : public RandomAccessFile {
 public:
  explicit CountingFile(std::unique_ptr<RandomAccessFile> file)
      : file_(std::move(file)) {}
  const FileInfo& info() const override { return file_->info(); }
  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    EXPECT_GE(offset, end_);
    auto count = file_->ReadAt(offset, buffer);
    if (count.ok()) {
      end_ = offset + *count;
      read_bytes_ += *count;
    }
    return count;
  }
  int64_t read_bytes() const { return read_bytes_; }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  mutable int64_t end_ = 0;
  mutable int64_t read_bytes_ = 0;
};

// Returns "name=content" of each file that an archive lists.
absl::StatusOr<std::vector<std::string>> Walk(const std::string& content,
                                              int64_t* read_bytes = nullptr) {
  MemoryFileSystem files;
  files.Write("/t.tar", content);
  const CountingFile file(*files.Open("/t.tar"));
  TarMembers archive(&file);
  std::vector<std::string> names;
  while (true) {
    TarMember member;
    const auto has_member = archive.Next(&member);
    if (read_bytes != nullptr) *read_bytes = file.read_bytes();
    if (!has_member.ok()) return has_member.status();
    if (!*has_member) return names;
    names.push_back(
        absl::StrCat(member.name, "=",
                     content.substr(static_cast<size_t>(member.offset),
                                    static_cast<size_t>(member.size_bytes))));
  }
}

std::string ErrorOf(const std::string& content, absl::StatusCode code) {
  const auto names = Walk(content);
  EXPECT_EQ(names.status().code(), code) << names.status();
  return std::string(names.status().message());
}

TEST(TarMembersTest, FilesAreFoundAndLinksPassedOver) {
  EXPECT_THAT(*Walk(Member("a", "1") + Member("d/", "", '5') +
                    Member("d/b", "22") + Member("l", "", '2') +
                    Member("e", "") + kTarEnd + std::string(512 * 7, '\0')),
              ElementsAre("a=1", "d/b=22", "e="));
}

TEST(TarMembersTest, NamesThatLeadOutAreRefused) {
  for (const char* name : {"../a", "a/../b", "a/..", "/etc/passwd", ".."}) {
    EXPECT_THAT(ErrorOf(Member(name, "x") + kTarEnd,
                        absl::StatusCode::kInvalidArgument),
                AllOf(HasSubstr("/t.tar: offset 0"), HasSubstr(name),
                      HasSubstr("leads out")));
    // By a long name, and by a pax header.
    EXPECT_THAT(
        ErrorOf(Member("@", absl::StrCat(name, std::string(1, '\0')), 'L') +
                    Member("a", "x") + kTarEnd,
                absl::StatusCode::kInvalidArgument),
        HasSubstr("leads out"));
    const std::string record = absl::StrCat(" path=", name, "\n");
    EXPECT_THAT(
        ErrorOf(Member("p", absl::StrCat(record.size() + 2, record), 'x') +
                    Member("a", "x") + kTarEnd,
                absl::StatusCode::kInvalidArgument),
        HasSubstr("leads out"));
  }
  EXPECT_THAT(*Walk(Member("a..b", "x") + Member("...", "") + kTarEnd),
              ElementsAre("a..b=x", "...="));
}

TEST(TarMembersTest, SizesAreCheckedAgainstTheFile) {
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  EXPECT_THAT(ErrorOf(TarHeader("a", "00000002000") + kTarEnd, kDataLoss),
              HasSubstr("offset 1536: the archive ends without"));
  EXPECT_THAT(ErrorOf(TarHeader("a", "00000002001") + kTarEnd, kDataLoss),
              HasSubstr("offset 0: a member of 1025 bytes, found 1024"));
  EXPECT_THAT(ErrorOf(TarHeader("a", "77777777777") + kTarEnd, kDataLoss),
              HasSubstr("a member of 8589934591 bytes"));
  EXPECT_THAT(ErrorOf(TarHeader("a", "0000000x") + kTarEnd,
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("offset 0: no header of a tar archive"));
  // Base 256: 5, 2^60, negative, too large.
  EXPECT_THAT(*Walk(TarHeader("a", Base256(5)) + "hello" +
                    std::string(507, '\0') + kTarEnd),
              ElementsAre("a=hello"));
  EXPECT_THAT(
      ErrorOf(TarHeader("a", Base256(uint64_t{1} << 60)) + kTarEnd, kDataLoss),
      HasSubstr("a member of 1152921504606846976 bytes"));
  EXPECT_THAT(
      ErrorOf(TarHeader("a", std::string(12, '\xff')) + kTarEnd, kDataLoss),
      HasSubstr("offset 0: the archive is damaged or cut off: Tar entry "
                "has negative size"));
  EXPECT_THAT(
      ErrorOf(
          Member("b", "") +
              TarHeader("a", std::string("\x80") + std::string(11, '\xff')) +
              kTarEnd,
          kDataLoss),
      HasSubstr("offset 512: the archive is damaged or cut off: Tar entry size "
                "overflow"));
  EXPECT_THAT(ErrorOf(Member("p", "28 size=9223372036854775806\n", 'x') +
                          Member("a", "x") + kTarEnd,
                      kDataLoss),
              HasSubstr("a member of 9223372036854775806 bytes"));
  EXPECT_THAT(
      ErrorOf(Member("p", "11 size=-1\n", 'x') + Member("a", "x") + kTarEnd,
              kDataLoss),
      HasSubstr("size attribute is negative"));
  EXPECT_THAT(
      *Walk(Member("p", "10 size=2\n", 'x') + Member("a", "abc") + kTarEnd),
      ElementsAre("a=ab"));
}

TEST(TarMembersTest, DamageIsNamedByOffset) {
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::string a = Member("a", "1");
  EXPECT_THAT(ErrorOf(a, kDataLoss), HasSubstr("offset 1024"));
  EXPECT_THAT(ErrorOf(a + std::string(512, '\0'), kDataLoss),
              HasSubstr("two blocks of zeros"));
  EXPECT_THAT(ErrorOf(a + kTarEnd + "x", kDataLoss), HasSubstr("cut off"));
  EXPECT_THAT(ErrorOf(a + kTarEnd + a, kDataLoss),
              HasSubstr("something follows"));
  EXPECT_THAT(ErrorOf(a + kTarEnd + std::string(1 << 20, '\0') + a, kDataLoss),
              HasSubstr("something follows"));
  EXPECT_THAT(ErrorOf(a + a.substr(0, 300), kDataLoss),
              HasSubstr("offset 1024: the archive is damaged or cut off: "
                        "Truncated tar archive"));
  EXPECT_THAT(ErrorOf(a + TarHeader("L", "00000002000", 'L'), kDataLoss),
              HasSubstr("offset 1024: the archive is damaged or cut off"));
  std::string wrong = a;
  wrong[0] = 'b';
  EXPECT_THAT(ErrorOf(a + wrong + kTarEnd, kDataLoss),
              HasSubstr("offset 1024: the archive is damaged"));
  EXPECT_THAT(ErrorOf(a + std::string(512, 'x') + kTarEnd, kDataLoss),
              HasSubstr("offset 1024: the archive is damaged"));
  for (const std::string& first :
       {wrong + kTarEnd, std::string(2048, 'x'), std::string(100, '\0')}) {
    EXPECT_THAT(ErrorOf(first, kInvalid),
                HasSubstr("offset 0: no header of a tar archive"));
  }
  for (const char kind : {'3', '4', '6', 'M', 'N', 'S', 'Z'}) {
    EXPECT_THAT(ErrorOf(a + Member("a", "", kind) + kTarEnd, kInvalid),
                HasSubstr(absl::StrCat("offset 1024: a member of kind '",
                                       std::string(1, kind), "'")));
  }
  for (const char* pax : {"x", "99 a=b\n", "6 a=b", "5 a b\n"}) {
    EXPECT_THAT(ErrorOf(Member("p", pax, 'x') + a + kTarEnd, kDataLoss),
                HasSubstr("pax extended attribute"))
        << pax;
  }
}

TEST(TarMembersTest, AReadThatFailsIsNotTakenForTheEnd) {
  const std::string content = Member("a", "1") + Member("b", "2") + kTarEnd +
                              std::string(1 << 16, '\0');
  for (int count = 0; count < 9; ++count) {
    MemoryFileSystem files;
    files.Write("/t.tar", content);
    const auto file = *files.Open("/t.tar");
    files.FailReadsAfter(count);
    TarMembers archive(file.get());
    absl::StatusOr<bool> has_member = true;
    TarMember member;
    while (has_member.ok() && *has_member) has_member = archive.Next(&member);
    EXPECT_TRUE(files.has_failed()) << count;
    EXPECT_THAT(has_member, StatusIs(absl::StatusCode::kUnavailable,
                                     ::testing::Not(HasSubstr("archive"))))
        << count;
  }
}

TEST(TarMembersTest, ContentsAreNotRead) {
  int64_t read_bytes = 0;
  const std::string content(10 << 20, 'x');
  EXPECT_EQ(
      Walk(Member("a", content) + Member("b", content) + kTarEnd, &read_bytes)
          ->size(),
      2);
  EXPECT_LT(read_bytes, 64 << 10);
}

TEST(TarMembersTest, AttributesOf64KilobytesArePassedOver) {
  const std::string record =
      absl::StrCat("65536 SCHILY.xattr.user.a=", std::string(65509, 'v'), "\n");
  EXPECT_THAT(*Walk(Member("p", record, 'x') + Member("a", "1") + kTarEnd),
              ElementsAre("a=1"));
}

TEST(TarMembersTest, HeadersWithoutEndAreRefusedEarly) {
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  int64_t read_bytes = 0;
  const auto error_of = [&](const std::string& content) {
    const auto names = Walk(content, &read_bytes);
    EXPECT_EQ(names.status().code(), kDataLoss) << names.status();
    EXPECT_LE(read_bytes, 100 << 10);
    return std::string(names.status().message());
  };
  const std::string tail = Member("a", "x") + kTarEnd;
  for (const char kind : {'K', 'L', 'V', 'g', 'x'}) {
    std::string many;
    for (int i = 0; i < 10'000; ++i) {
      many += Member("p", kind == 'V' ? "" : "7 a=bc\n", kind);
    }
    const auto names = Walk(many + tail, &read_bytes);
    EXPECT_FALSE(names.ok()) << kind;
    EXPECT_LE(read_bytes, 100 << 10) << kind;
  }
  EXPECT_THAT(error_of(Member("L", std::string(1'000'000, 'x'), 'L') + tail),
              HasSubstr("more than 73728 bytes of headers"));
  EXPECT_THAT(error_of(Member("L", std::string(2'000'000, 'x'), 'L') + tail),
              HasSubstr("Special header too large"));
  // A map of a sparse file, before its data.
  std::string map = "9999999\n";
  for (int i = 0; i < 1'000'000; ++i) map += "0\n0\n";
  EXPECT_THAT(error_of(Member("p",
                              "22 GNU.sparse.major=1\n22 "
                              "GNU.sparse.minor=0\n",
                              'x') +
                       Member("a", map) + kTarEnd),
              HasSubstr("more than 73728 bytes of headers"));
  // The same in the version before.
  std::string old = TarHeader("a", "00000000000", 'S');
  old.replace(257, 8, std::string("ustar  \0", 8));
  old[386] = '0';
  old[482] = 1;
  SignTarHeader(old);
  for (int i = 0; i < 10'000; ++i) {
    std::string block(512, '\0');
    for (size_t entry = 0; entry < 21; ++entry) block[entry * 24] = '0';
    block[504] = 1;
    old += block;
  }
  EXPECT_THAT(error_of(old + kTarEnd),
              HasSubstr("more than 73728 bytes of headers"));
}

// Archives by GNU tar.
class GnuTarTest : public ::testing::Test {
 protected:
  // Creates files, and returns the archive of `names`.
  std::string Tar(const std::string& options, const std::string& names) {
    const std::string command =
        absl::StrCat("cd ", directory_.path().string(),
                     " && tar --create --file=t.tar ", options, " ", names);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return ReadFileOrDie(directory_.File("t.tar"));
  }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(directory_.File(name)) << content;
  }
  void Run(const std::string& command) {
    EXPECT_EQ(std::system(absl::StrCat("cd ", directory_.path().string(),
                                       " && ", command)
                              .c_str()),
              0)
        << command;
  }

  TempDir directory_;
};

class GnuTarFormatTest : public GnuTarTest,
                         public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Formats, GnuTarFormatTest,
                         ::testing::Values("v7", "oldgnu", "gnu", "ustar",
                                           "posix"));

TEST_P(GnuTarFormatTest, EveryFileIsFoundWithItsContent) {
  const std::string large(20'001, 'z');
  const std::string long_name =
      absl::StrCat(std::string(80, 'd'), "/", std::string(80, 'f'), ".cls");
  const std::string longest_name = std::string(200, 'n');
  Run(absl::StrCat("mkdir d ", std::string(80, 'd')));
  Write("d/a.cls", "1");
  Write("empty", "");
  Write("large", large);
  Write("\xc3\xa4.jpg", "umlaut");
  Write(long_name, "long");
  Write(longest_name, "longest");
  Run("ln d/a.cls hard && ln -s d/a.cls soft");
  const std::string format = GetParam();
  std::string names = "d hard soft empty large \xc3\xa4.jpg";
  std::vector<std::string> expected = {"d/a.cls=1",
                                       "empty=", absl::StrCat("large=", large),
                                       "\xc3\xa4.jpg=umlaut"};
  if (format != "v7") {
    absl::StrAppend(&names, " ", long_name);
    expected.push_back(absl::StrCat(long_name, "=long"));
  }
  if (format != "v7" && format != "ustar") {
    absl::StrAppend(&names, " ", longest_name);
    expected.push_back(absl::StrCat(longest_name, "=longest"));
  }
  absl::StrAppend(&names, " large");
  const std::string content =
      Tar(absl::StrCat("--hard-dereference --format=", format), names);
  // With --hard-dereference, a hard link is a file of its own.
  expected.push_back("hard=1");
  expected.push_back(absl::StrCat("large=", large));
  EXPECT_THAT(*Walk(content), ::testing::UnorderedElementsAreArray(expected));
  // Without, it is passed over.
  EXPECT_THAT(
      *Walk(Tar(absl::StrCat("--format=", format), "d hard soft empty")),
      UnorderedElementsAre("d/a.cls=1", "empty="));
}

TEST_F(GnuTarTest, SparseFilesAreRefused) {
  Run("printf abc >holes && truncate --size=1M holes && printf d >>holes");
  for (const char* format :
       {"oldgnu", "gnu", "posix --sparse-version=0.0",
        "posix --sparse-version=0.1", "posix --sparse-version=1.0"}) {
    const std::string content =
        Tar(absl::StrCat("--sparse --hole-detection=raw --format=", format),
            "holes");
    EXPECT_LT(content.size(), 100'000) << format;
    EXPECT_THAT(ErrorOf(content, absl::StatusCode::kInvalidArgument),
                HasSubstr("offset 0: a sparse member, which is not read"))
        << format;
  }
}

TEST_F(GnuTarTest, GlobalHeadersArePassedOver) {
  Write("a", "1");
  EXPECT_THAT(*Walk(Tar("--format=posix --pax-option=comment=hello", "a")),
              ElementsAre("a=1"));
}

}  // namespace
}  // namespace datasetd::testing
