#include "base/utf8.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(Utf8Test, TextStaysAsItIs) {
  for (const char* text :
       {"", "cat", "it's \"a\\b\"", "\xC3\xA4\xC3\x9F", "\xE2\x82\xAC",
        "\xE6\x97\xA5\xE6\x9C\xAC", "\xF0\x9F\x90\xB1", "\xEF\xBF\xBF",
        "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_EQ(PrintableUtf8(text), text);
  }
}

TEST(Utf8Test, TheFirstInvalidByteIsFound) {
  const std::string valid = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\xB1\xC2\x85";
  EXPECT_EQ(ValidUtf8Prefix(valid), valid.size());
  EXPECT_EQ(ValidUtf8Prefix(""), 0);
  for (const char* text :
       {"\x80", "\xC3", "\xC1\xBF", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_EQ(ValidUtf8Prefix(absl::StrCat(valid, text, "z")), valid.size());
  }
}

TEST(Utf8Test, OtherBytesAreEscaped) {
  EXPECT_EQ(PrintableUtf8("a\xFFz!"), "a\\xffz!");
  EXPECT_EQ(PrintableUtf8("a\nb"), "a\\nb");
  EXPECT_EQ(PrintableUtf8(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(PrintableUtf8("\xC3\xA4\xFF\xC3\x9F"), "\xC3\xA4\\xff\xC3\x9F");
  for (const char* text :
       {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE2\x82",
        "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xC2\x85", "\x7F", "\x1B[0m"}) {
    const std::string escaped = PrintableUtf8(text);
    EXPECT_NE(escaped, text);
    for (const char c : escaped) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

// Characters that drive a terminal, break a line or reverse the order of text.
TEST(Utf8Test, UnseenCharactersAreEscaped) {
  for (const char* text :
       {"\xC2\x9B" /* U+9B, CSI */, "\xC2\x85" /* U+85, next line */,
        "\xC2\xAD" /* U+AD */, "\xD8\x9C" /* U+61C */,
        "\xE2\x80\x8B" /* U+200B */, "\xE2\x80\x8D" /* U+200D */,
        "\xE2\x80\x8F" /* U+200F */, "\xE2\x80\xA8" /* U+2028 */,
        "\xE2\x80\xA9" /* U+2029 */, "\xE2\x80\xAA" /* U+202A */,
        "\xE2\x80\xAE" /* U+202E */, "\xE2\x81\xA0" /* U+2060 */,
        "\xE2\x81\xA6" /* U+2066 */, "\xE2\x81\xA9" /* U+2069 */,
        "\xEF\xBB\xBF" /* U+FEFF */, "\xEF\xBF\xB9" /* U+FFF9 */,
        "\xF3\xA0\x80\x81" /* U+E0001 */}) {
    std::string escaped;
    AppendPrintable(absl::StrCat("a", text, "b"), &escaped);
    EXPECT_THAT(escaped, ::testing::MatchesRegex("a(\\\\x[0-9a-f]+)+b"));
    EXPECT_EQ(escaped.size(), 2 + 4 * std::string(text).size());
  }
}

TEST(Utf8Test, JoinersStayWhereScriptsNeedThem) {
  // Two letters of Persian, and a man with a laptop.
  for (const char* text : {"\xD9\x85\xE2\x80\x8C\xD8\xAE",
                           "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x92\xBB"}) {
    EXPECT_EQ(PrintableUtf8(text), text);
  }
  EXPECT_EQ(PrintableUtf8("ro\xE2\x80\x8Dot"), "ro\\xe2\\x80\\x8dot");
  EXPECT_EQ(PrintableUtf8("\xD9\x85\xE2\x80\x8D"), "\xD9\x85\\xe2\\x80\\x8d");
  EXPECT_EQ(PrintableUtf8("\xD9\x85\xE2\x80\x8D\xE2\x80\xAE"),
            "\xD9\x85\\xe2\\x80\\x8d\\xe2\\x80\\xae");
}

}  // namespace
}  // namespace datasetd
