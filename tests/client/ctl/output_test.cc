#include "client/ctl/output.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "datasetd/v1/dataset.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

TEST(OutputTest, BytesHaveTheUnitThatKeepsThemBelowAThousand) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.0 kB");
  EXPECT_EQ(FormatBytes(999949), "999.9 kB");
  EXPECT_EQ(FormatBytes(999950), "1.0 MB");
  EXPECT_EQ(FormatBytes(153650000), "153.7 MB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "18.4 EB");
}

TEST(OutputTest, SecondsAreRoundedToWhatOneReads) {
  EXPECT_EQ(FormatSeconds(0), "0.0 s");
  EXPECT_EQ(FormatSeconds(9.94), "9.9 s");
  EXPECT_EQ(FormatSeconds(9.96), "10 s");
  EXPECT_EQ(FormatSeconds(59.6), "1 min 0 s");
  EXPECT_EQ(FormatSeconds(185), "3 min 5 s");
  EXPECT_EQ(FormatSeconds(7800), "2 h 10 min");
  EXPECT_EQ(FormatSeconds(-1), "-");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(OutputTest, TableAlignsNumbersToTheRight) {
  EXPECT_EQ(
      FormatTable({{"NAME", "SAMPLES"}, {"a", "7"}, {"bcdef", "12345678"}}),
      "NAME    SAMPLES\n"
      "a             7\n"
      "bcdef  12345678\n");
}

TEST(OutputTest, TableOfAHeaderAloneIsOneLine) {
  EXPECT_EQ(FormatTable({{"A", "B"}}), "A  B\n");
}

TEST(OutputTest, ATerminalGetsNoControlCharacters) {
  EXPECT_EQ(WithoutControls("a\x1b[2J\r\t\x7f\nb"),
            "a\\x1b[2J\\x0d\\x09\\x7f\nb");
  // CSI as one character of UTF-8; \xc2 that begins another, or nothing.
  EXPECT_EQ(WithoutControls("\xc2\x9b"
                            "2J \xc2\xb5s \xc3\x9c \xc2"),
            "\\xc2\\x9b2J \xc2\xb5s \xc3\x9c \xc2");
  EXPECT_EQ(FormatTable({{"NAME", "N"}, {"a\nb\x1b[m", "1"}}),
            "NAME        N\n"
            "a\\nb\\x1b[m  1\n");
  // U+202E, U+2069 and U+061C; U+2013 and U+2070 are ordinary.
  EXPECT_EQ(WithoutControls("\xe2\x80\xae \xe2\x81\xa9 \xd8\x9c"),
            "\\xe2\\x80\\xae \\xe2\\x81\\xa9 \\xd8\\x9c");
  EXPECT_EQ(WithoutControls("\xe2\x80\x93 \xe2\x81\xb0 \xe2\x80"),
            "\xe2\x80\x93 \xe2\x81\xb0 \xe2\x80");
}

TEST(OutputTest, ColumnsOfATableCountCharacters) {
  EXPECT_EQ(FormatTable({{"NAME", "N"}, {"\xc3\xa4", "1"}, {"abcde", "2"}}),
            "NAME   N\n"
            "\xc3\xa4      1\n"
            "abcde  2\n");
}

TEST(OutputTest, MessagesHaveTheNamesOfTheProtoAndEveryField) {
  v1::Dataset dataset;
  dataset.set_name("d");
  dataset.set_num_samples(3);
  const auto json = nlohmann::json::parse(ToJson(dataset));
  EXPECT_EQ(json["name"], "d");
  EXPECT_EQ(json["num_samples"], "3");
  EXPECT_EQ(json["num_feeds"], 0);
  EXPECT_EQ(json["state"], "DATASET_STATE_UNSPECIFIED");
}

TEST(OutputTest, ErrorsAreJsonWhateverTheMessageHolds) {
  const auto json =
      nlohmann::json::parse(ErrorToJson(absl::NotFoundError("no \"x\"\n\xff")));
  EXPECT_EQ(json["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json["error"]["message"], "no \"x\"\n\xef\xbf\xbd");
}

}  // namespace
}  // namespace datasetd::ctl
