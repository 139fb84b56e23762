#include "server/core/utf8.h"

#include <string>

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

TEST(Utf8Test, OtherBytesAreEscaped) {
  EXPECT_EQ(PrintableUtf8("a\xFFz!"), "a\\xffz!");
  EXPECT_EQ(PrintableUtf8("a\nb"), "a\\nb");
  EXPECT_EQ(PrintableUtf8(std::string("a\0b", 3)), "a\\x00\\x62");
  for (const char* text :
       {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE2\x82",
        "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xC2\x85", "\x7F", "\x1B[0m"}) {
    const std::string escaped = PrintableUtf8(text);
    EXPECT_NE(escaped, text);
    for (const char c : escaped) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

}  // namespace
}  // namespace datasetd
