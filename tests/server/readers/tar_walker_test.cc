#include "server/readers/archives/tar_walker.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kEnd(1024, '\0');

// A header with a right checksum.
std::string Header(const std::string& name, const std::string& size,
                   char kind = '0', const std::string& magic = "ustar") {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(124, size.size(), size);
  block[156] = kind;
  block.replace(257, magic.size(), magic);
  block.replace(263, 2, "00");
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[9];
  std::snprintf(text, sizeof(text), "%06o", sum);
  block.replace(148, 7, std::string(text) + '\0');
  return block;
}

std::string Member(const std::string& name, const std::string& content,
                   char kind = '0') {
  char size[13];
  std::snprintf(size, sizeof(size), "%011zo", content.size());
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512, '\0');
  return Header(name, size, kind) + padded;
}

absl::StatusOr<std::vector<std::string>> Walk(const std::string& content) {
  MemoryFileSystem files;
  files.Write("/t.tar", content);
  const auto file = files.Open("/t.tar");
  TarWalker walker(file->get());
  std::vector<std::string> names;
  while (true) {
    TarMember member;
    const auto has_member = walker.Next(&member);
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

TEST(TarWalkerTest, FilesAreFoundAndLinksPassedOver) {
  EXPECT_THAT(*Walk(Member("a", "1") + Member("d/", "", '5') +
                    Member("d/b", "22") + Member("l", "", '2') +
                    Member("e", "") + kEnd + std::string(512 * 7, '\0')),
              ElementsAre("a=1", "d/b=22", "e="));
}

TEST(TarWalkerTest, NamesThatLeadOutAreRefused) {
  for (const char* name : {"../a", "a/../b", "a/..", "/etc/passwd", ".."}) {
    EXPECT_THAT(
        ErrorOf(Member(name, "x") + kEnd, absl::StatusCode::kInvalidArgument),
        AllOf(HasSubstr("/t.tar: offset 0"), HasSubstr(name),
              HasSubstr("leads out")));
    // By a long name, and by a pax header.
    EXPECT_THAT(
        ErrorOf(Member("@", absl::StrCat(name, std::string(1, '\0')), 'L') +
                    Member("a", "x") + kEnd,
                absl::StatusCode::kInvalidArgument),
        HasSubstr("leads out"));
    const std::string record = absl::StrCat(" path=", name, "\n");
    EXPECT_THAT(
        ErrorOf(Member("p", absl::StrCat(record.size() + 2, record), 'x') +
                    Member("a", "x") + kEnd,
                absl::StatusCode::kInvalidArgument),
        HasSubstr("leads out"));
  }
  EXPECT_THAT(*Walk(Member("a..b", "x") + Member("...", "") + kEnd),
              ElementsAre("a..b=x", "...="));
}

TEST(TarWalkerTest, SizesAreCheckedAgainstTheFile) {
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  EXPECT_THAT(ErrorOf(Header("a", "00000002000") + kEnd, kDataLoss),
              HasSubstr("offset 1536: the archive ends without"));
  EXPECT_THAT(ErrorOf(Header("a", "00000002001") + kEnd, kDataLoss),
              HasSubstr("a member of 1025 bytes"));
  EXPECT_THAT(ErrorOf(Header("a", "77777777777") + kEnd, kDataLoss),
              HasSubstr("a member of 8589934591 bytes"));
  EXPECT_THAT(ErrorOf(Header("a", "0000000x") + kEnd, kDataLoss),
              HasSubstr("a member of -1 bytes"));
  // Base 256: 2^60, negative, too large.
  for (const std::string& size :
       {std::string("\x80\0\0\0\x10\0\0\0\0\0\0\0", 12),
        std::string(12, '\xff'),
        std::string("\xbf") + std::string(11, '\xff')}) {
    EXPECT_THAT(ErrorOf(Header("a", size) + kEnd, kDataLoss),
                HasSubstr("a member of"));
  }
  EXPECT_THAT(ErrorOf(Member("p", "30 size=9223372036854775807\n\n\n", 'x') +
                          Member("a", "x") + kEnd,
                      kDataLoss),
              HasSubstr("offset"));
  EXPECT_THAT(ErrorOf(Member("p", "11 size=-1\n", 'x') + kEnd, kDataLoss),
              HasSubstr("size is no number"));
  EXPECT_THAT(
      ErrorOf(Header("L", "00000300000", 'L') + std::string(98304, 'x') + kEnd,
              kDataLoss),
      HasSubstr("an extended header of 98304 bytes"));
}

TEST(TarWalkerTest, DamageIsNamedByOffset) {
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  const std::string a = Member("a", "1");
  EXPECT_THAT(ErrorOf(a, kDataLoss), HasSubstr("offset 1024"));
  EXPECT_THAT(ErrorOf(a + std::string(512, '\0'), kDataLoss),
              HasSubstr("two blocks of zeros"));
  EXPECT_THAT(ErrorOf(a + kEnd + "x", kDataLoss), HasSubstr("cut off"));
  EXPECT_THAT(ErrorOf(a + kEnd + a, kDataLoss), HasSubstr("something follows"));
  std::string wrong = a;
  wrong[0] = 'b';
  EXPECT_THAT(ErrorOf(wrong + kEnd, kDataLoss), HasSubstr("checksum is wrong"));
  EXPECT_THAT(ErrorOf(a + std::string(512, 'x') + kEnd, kDataLoss),
              HasSubstr("offset 1024: no header"));
  EXPECT_THAT(
      ErrorOf(std::string(2048, 'x'), absl::StatusCode::kInvalidArgument),
      HasSubstr("offset 0: no header of a tar archive"));
  EXPECT_THAT(
      ErrorOf(Member("a", "", 'S') + kEnd, absl::StatusCode::kInvalidArgument),
      HasSubstr("kind 'S'"));
  for (const char* pax : {"x", "5 a=b\n", "99 a=b\n", "6 a=b", " a=b\n"}) {
    EXPECT_THAT(ErrorOf(Member("p", pax, 'x') + a + kEnd, kDataLoss),
                HasSubstr("pax header"))
        << pax;
  }
}

}  // namespace
}  // namespace datasetd::testing
