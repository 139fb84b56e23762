#include "server/core/transforms_hash.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

std::string HashOf(std::vector<TransformSpec> ops,
                   Layout layout = Layout::kNchw,
                   std::string name = "image") {
  const std::vector<FieldPipeline> pipelines = {
      {std::move(name), std::move(ops), layout}};
  return TransformsHash(pipelines);
}

TEST(TransformsHashTest, IsStable) {
  // A change here breaks resuming from a checkpoint.
  EXPECT_EQ(HashOf({RandomCropSpec{.height = 32, .width = 32,
                                   .padding = {4, 4, 4, 4},
                                   .padding_mode = PaddingMode::kReflect},
                    RandomHorizontalFlipSpec{},
                    ToDtypeSpec{Dtype::kFloat16, true},
                    NormalizeSpec{{0.5, 0.25, 0.125}, {0.2}}},
                   Layout::kNhwc),
            "3011d685ca8ae18e78df6841b6c71efb");
}

TEST(TransformsHashTest, EveryParameterCounts) {
  const std::vector<std::string> hashes = {
      TransformsHash({}),
      HashOf({}),
      HashOf({}, Layout::kNhwc),
      HashOf({}, Layout::kNchw, "mask"),
      HashOf({PadSpec{}}),
      HashOf({PadSpec{}, PadSpec{}}),
      HashOf({PadSpec{.padding = {1, 0, 0, 0}}}),
      HashOf({PadSpec{.padding = {0, 1, 0, 0}}}),
      HashOf({PadSpec{.padding = {0, 0, 1, 0}}}),
      HashOf({PadSpec{.padding = {0, 0, 0, 1}}}),
      HashOf({PadSpec{.padding = {11, 1, 0, 0}}}),
      HashOf({PadSpec{.padding = {1, 11, 0, 0}}}),
      HashOf({PadSpec{.fill = {1}}}),
      HashOf({PadSpec{.fill = {1, 2, 3}}}),
      HashOf({PadSpec{.padding_mode = PaddingMode::kEdge}}),
      HashOf({PadSpec{.padding_mode = PaddingMode::kReflect}}),
      HashOf({CenterCropSpec{1, 2}}),
      HashOf({CenterCropSpec{2, 1}}),
      HashOf({RandomCropSpec{1, 2}}),
      HashOf({RandomCropSpec{2, 1}}),
      HashOf({RandomCropSpec{.height = 1, .width = 2,
                             .pad_if_needed = true}}),
      HashOf({RandomCropSpec{.height = 1, .width = 2,
                             .padding = {1, 1, 1, 1}}}),
      HashOf({RandomHorizontalFlipSpec{}}),
      HashOf({RandomHorizontalFlipSpec{.p = 0.25}}),
      HashOf({RandomVerticalFlipSpec{}}),
      HashOf({AlternatingFlipSpec{}}),
      HashOf({AlternatingFlipSpec{}, RandomVerticalFlipSpec{}}),
      HashOf({RandomVerticalFlipSpec{}, AlternatingFlipSpec{}}),
      HashOf({ToDtypeSpec{}}),
      HashOf({ToDtypeSpec{.scale = true}}),
      HashOf({ToDtypeSpec{Dtype::kFloat16}}),
      HashOf({NormalizeSpec{{0.5}, {0.25}}}),
      HashOf({NormalizeSpec{{0.25}, {0.5}}}),
      HashOf({NormalizeSpec{{0.5, 0.25}, {0.25}}}),
      HashOf({NormalizeSpec{{0.5}, {0.25, 0.25, 0.125}}}),
  };
  const std::set<std::string> distinct(hashes.begin(), hashes.end());
  EXPECT_EQ(distinct.size(), hashes.size());
  for (const std::string& hash : hashes) {
    EXPECT_THAT(hash, ::testing::MatchesRegex("[0-9a-f]{32}"));
  }
}

TEST(TransformsHashTest, FieldsAreKeptApart) {
  const std::vector<FieldPipeline> a = {{"a", {PadSpec{}}}, {"b", {}}};
  const std::vector<FieldPipeline> b = {{"a", {}}, {"b", {PadSpec{}}}};
  const std::vector<FieldPipeline> swapped = {{"b", {}}, {"a", {PadSpec{}}}};
  EXPECT_NE(TransformsHash(a), TransformsHash(b));
  EXPECT_NE(TransformsHash(a), TransformsHash(swapped));
  // A name that looks like the canonical text of two fields.
  const std::vector<FieldPipeline> two = {{"a", {}}, {"b", {}}};
  const std::vector<FieldPipeline> one = {{"a NCHW\nfield 1 b", {}}};
  EXPECT_NE(TransformsHash(two), TransformsHash(one));
}

TEST(TransformsHashTest, WaysToSayTheSameAreEqual) {
  EXPECT_EQ(HashOf({PadSpec{}}), HashOf({PadSpec{.fill = {0}}}));
  EXPECT_EQ(HashOf({PadSpec{}}), HashOf({PadSpec{.fill = {0, 0, -0.0f}}}));
  EXPECT_EQ(HashOf({PadSpec{.padding_mode = PaddingMode::kEdge}}),
            HashOf({PadSpec{.fill = {9},
                            .padding_mode = PaddingMode::kEdge}}));
  EXPECT_EQ(HashOf({NormalizeSpec{{0.5, 0.5, 0.5}, {0.1}}}),
            HashOf({NormalizeSpec{{0.5}, {0.1f, 0.1f, 0.1f}}}));
}

}  // namespace
}  // namespace datasetd
