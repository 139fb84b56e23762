#include "base/nearest_word.h"

#include "gtest/gtest.h"

namespace datasetd {
namespace {

const std::vector<std::string> kWords = {"status", "datasets", "load", "unload",
                                         "top"};

TEST(NearestWordTest, FindsWhatAFewLettersChange) {
  EXPECT_EQ(NearestWord("stats", kWords), "status");
  EXPECT_EQ(NearestWord("dataset", kWords), "datasets");
  EXPECT_EQ(NearestWord("laod", kWords), "");
  EXPECT_EQ(NearestWord("loads", kWords), "load");
  EXPECT_EQ(NearestWord("unlaod", kWords), "unload");
  EXPECT_EQ(NearestWord("tpo", kWords), "");
  EXPECT_EQ(NearestWord("to", kWords), "top");
}

TEST(NearestWordTest, FindsNothingForAnotherWord) {
  EXPECT_EQ(NearestWord("frobnicate", kWords), "");
  EXPECT_EQ(NearestWord("", kWords), "");
  EXPECT_EQ(NearestWord("status", {}), "");
}

}  // namespace
}  // namespace datasetd
