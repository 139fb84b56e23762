#include "server/readers/csv_line.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Split(absl::string_view line) {
  // SplitCsvLine replaces the previous values.
  std::vector<std::string> values = {"old", "values", "of", "another", "line"};
  EXPECT_THAT(SplitCsvLine(line, values), IsOk());
  return values;
}

TEST(CsvLineTest, ValuesAreWhatStandsBetweenCommas) {
  EXPECT_THAT(Split("a,b c,"), ElementsAre("a", "b c", ""));
  EXPECT_THAT(Split(""), ElementsAre(""));
  EXPECT_THAT(Split(",,"), ElementsAre("", "", ""));
  EXPECT_THAT(Split("a\"b"), ElementsAre("a\"b"));
}

TEST(CsvLineTest, QuotesKeepCommasAndAreDoubled) {
  EXPECT_THAT(Split("\"a,b\",\"\",\"c\"\"d\""), ElementsAre("a,b", "", "c\"d"));
  EXPECT_THAT(Split("\"\"\"\""), ElementsAre("\""));
}

TEST(CsvLineTest, AQuoteThatIsWrongIsAnError) {
  std::vector<std::string> values;
  for (const char* line : {"\"a", "\"a\"\"", "\"", "b,\""}) {
    EXPECT_THAT(SplitCsvLine(line, values),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("does not end")));
  }
  EXPECT_THAT(SplitCsvLine("\"a\"b,c", values),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("behind a quote")));
}

}  // namespace
}  // namespace datasetd
