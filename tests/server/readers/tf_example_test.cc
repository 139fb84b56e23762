#include "server/readers/archives/tf_example.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/allocation_meter.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::AllocationMeter;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = TfExample::Feature::Kind;

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) {
    text += static_cast<char>(value | 0x80);
  }
  return text + static_cast<char>(value);
}
// A field with a length.
std::string Field(int number, const std::string& content) {
  return absl::StrCat(Varint(static_cast<uint64_t>(number) << 3 | 2),
                      Varint(content.size()), content);
}
std::string Entry(const std::string& name, const std::string& feature) {
  return Field(1, absl::StrCat(Field(1, name), Field(2, feature)));
}
std::string Example(const std::string& entries) { return Field(1, entries); }
std::string Raw(const void* data, size_t size) {
  return std::string(static_cast<const char*>(data), size);
}

absl::StatusOr<TfExample> Parse(const std::string& record) {
  return TfExample::Parse(absl::MakeConstSpan(
      reinterpret_cast<const uint8_t*>(record.data()), record.size()));
}
template <typename T>
std::vector<T> Numbers(const TfExample::Feature& feature) {
  std::vector<T> numbers(static_cast<size_t>(feature.count()));
  feature.CopyNumbers(absl::MakeSpan(reinterpret_cast<uint8_t*>(numbers.data()),
                                     numbers.size() * sizeof(T)));
  return numbers;
}

TEST(TfExampleTest, ListsOfAllKindsPackedAndNot) {
  const float floats[] = {1.5f, -2.0f};
  const std::string one_float = absl::StrCat("\x0d", Raw(floats, 4));
  const std::string record = Example(absl::StrCat(
      Entry("text", Field(1, Field(1, "abc"))),
      Entry("texts", Field(1, Field(1, "a") + Field(1, "bc"))),
      Entry("floats", Field(2, Field(1, Raw(floats, 8)) + one_float)),
      Entry("ints", Field(3, absl::StrCat(Field(1, Varint(7) + Varint(~0ull)),
                                          "\x08", Varint(300)))),
      Entry("none", ""), Entry("empty", Field(3, ""))));
  const auto example = Parse(record);
  ASSERT_THAT(example, IsOk());
  const auto& features = example->features();
  EXPECT_EQ(features.size(), 6u);
  EXPECT_EQ(features.at("text").kind(), Kind::kBytes);
  EXPECT_EQ(features.at("text").count(), 1);
  EXPECT_THAT(features.at("text").bytes(), ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(features.at("texts").count(), 2);
  EXPECT_EQ(features.at("floats").number_bytes(), 12);
  EXPECT_THAT(Numbers<float>(features.at("floats")),
              ElementsAre(1.5f, -2.0f, 1.5f));
  EXPECT_EQ(features.at("ints").number_bytes(), 24);
  EXPECT_THAT(Numbers<int64_t>(features.at("ints")), ElementsAre(7, -1, 300));
  EXPECT_EQ(features.at("none").kind(), Kind::kNothing);
  EXPECT_EQ(features.at("empty").kind(), Kind::kInt64s);
  EXPECT_EQ(features.at("empty").count(), 0);
}

TEST(TfExampleTest, UnknownFieldsAreLeftOutAndTheLastOfANameCounts) {
  const std::string record = absl::StrCat(
      Field(9, "?"), Example(Entry("a", Field(1, Field(1, "first")))), "\x50",
      Varint(5),
      Example(Entry("a", Field(9, "") + Field(1, Field(1, "last")))));
  const auto example = Parse(record);
  ASSERT_THAT(example, IsOk());
  EXPECT_THAT(example->features().at("a").bytes(),
              ElementsAre('l', 'a', 's', 't'));
  const auto nothing = Parse("");
  ASSERT_THAT(nothing, IsOk());
  EXPECT_THAT(nothing->features(), IsEmpty());
}

TEST(TfExampleTest, EveryCutIsNoticedOrGivesLess) {
  const float number = 3.0f;
  const std::string record =
      Example(absl::StrCat(Entry("i", Field(3, Field(1, Varint(300)))),
                           Entry("f", Field(2, Field(1, Raw(&number, 4))))));
  for (size_t size = 1; size < record.size(); ++size) {
    EXPECT_THAT(
        Parse(record.substr(0, size)),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no tf.train.Example")))
        << size;
  }
  // Within lists whose own lengths are right.
  for (const std::string& feature :
       {Field(2, Field(1, "abc")), Field(3, Field(1, "\xff")), Field(3, "\x08"),
        Field(2, "\x0d\1\2"), Field(1, "\x0a\5ab"),
        Field(1, "") + Field(1, "")}) {
    EXPECT_THAT(Parse(Example(Entry("a", feature))),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(TfExampleTest, WhatExpandsWhenItIsParsedTakesNoMemory) {
  // Three million strings, which as objects would take 100 MB and more.
  constexpr int64_t kCount = 3'000'000;
  std::string list;
  for (int64_t i = 0; i < kCount; ++i) list += Field(1, "");
  const std::string record = Example(Entry("a", Field(1, list)));
  const AllocationMeter meter;
  const auto example = Parse(record);
  ASSERT_THAT(example, IsOk());
  EXPECT_EQ(example->features().at("a").count(), kCount);
  EXPECT_LT(meter.peak_bytes(), 1000);
}

TEST(TfExampleTest, TooManyFeaturesAreRefused) {
  std::string entries;
  for (size_t i = 0; i < TfExample::kMaxFeatures; ++i) {
    entries += Entry(absl::StrCat(i), "");
  }
  EXPECT_THAT(Parse(Example(entries)), IsOk());
  entries += Entry("one more", "");
  EXPECT_THAT(Parse(Example(entries)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 16384 features")));
}

}  // namespace
}  // namespace datasetd
