#include "server/readers/brace_pattern.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> Paths(const std::string& pattern) {
  ListMemory memory{DecodeAccount()};
  return ExpandBraces(pattern, memory);
}

std::string Expand(const std::string& pattern) {
  const auto paths = Paths(pattern);
  return paths.ok() ? absl::StrJoin(*paths, " ")
                    : std::string(paths.status().message());
}

// The expected texts are what bash prints for `echo PATTERN`.
TEST(BracePatternTest, ExpandsAsBashDoes) {
  EXPECT_EQ(Expand("/a/b.tar"), "/a/b.tar");
  EXPECT_EQ(Expand("{000..003}.tar"), "000.tar 001.tar 002.tar 003.tar");
  EXPECT_EQ(Expand("x{8..11}"), "x8 x9 x10 x11");
  EXPECT_EQ(Expand("x{08..11}"), "x08 x09 x10 x11");
  EXPECT_EQ(Expand("x{8..011}"), "x008 x009 x010 x011");
  EXPECT_EQ(Expand("x{3..1}"), "x3 x2 x1");
  EXPECT_EQ(Expand("x{0..0}y"), "x0y");
  EXPECT_EQ(Expand("{a,bc,}x"), "ax bcx x");
  EXPECT_EQ(Expand("{a,b}-{1..2}.t"), "a-1.t a-2.t b-1.t b-2.t");
}

TEST(BracePatternTest, OtherBracesAreErrors) {
  for (const char* pattern :
       {"{", "}", "a}b{", "{1..2", "{{1..2}}", "{a}", "{}", "{1..}", "{..2}",
        "{a..c}", "{-1..2}", "{1..2..3}", "{0..99999999999999999999}"}) {
    EXPECT_THAT(Paths(pattern),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("expected {000..146} or {a,b}")))
        << pattern;
  }
}

TEST(BracePatternTest, TheNumberOfFilesIsBounded) {
  EXPECT_EQ(Paths("{1..65536}")->size(), 65536);
  EXPECT_THAT(Expand("{0..65536}"), HasSubstr("more than 65536"));
  EXPECT_THAT(Expand("{0..999}{0..999}{0..999}"), HasSubstr("more than 65536"));
  EXPECT_THAT(Expand("{0..999999999999999999}"), HasSubstr("more than 65536"));
}

}  // namespace
}  // namespace datasetd
