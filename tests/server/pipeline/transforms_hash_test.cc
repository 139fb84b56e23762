#include "server/pipeline/transforms_hash.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

std::string HashOf(std::vector<TransformSpec> ops,
                   Layout layout = Layout::kNchw, std::string name = "image") {
  const std::vector<FieldPipeline> pipelines = {
      {std::move(name), std::move(ops), layout}};
  return TransformsHash(pipelines);
}

TransformSpec WithDrawId(TransformSpec transform, uint32_t draw_id) {
  transform.draw_id = draw_id;
  return transform;
}

TEST(TransformsHashTest, IsStable) {
  // A change here breaks resuming from a checkpoint.
  EXPECT_EQ(
      HashOf({RandomCropSpec{.height = 32,
                             .width = 32,
                             .padding = {4, 4, 4, 4},
                             .padding_mode = PaddingMode::kReflect},
              RandomHorizontalFlipSpec{}, ToDtypeSpec{Dtype::kFloat16, true},
              NormalizeSpec{{0.5, 0.25, 0.125}, {0.2}}},
             Layout::kNhwc),
      "3fc3f4a8cf3d891758a2b39aab519f8a623370eaca376eb2827603b9b02c1bd5");
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
      HashOf({RandomCropSpec{.height = 1, .width = 2, .pad_if_needed = true}}),
      HashOf(
          {RandomCropSpec{.height = 1, .width = 2, .padding = {1, 1, 1, 1}}}),
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
      HashOf({CropSpec{1, 2, 3, 4}}),
      HashOf({CropSpec{2, 1, 3, 4}}),
      HashOf({CropSpec{1, 2, 4, 3}}),
      HashOf({CropSpec{-1, 2, 3, 4}}),
      HashOf({HorizontalFlipSpec{}}),
      HashOf({VerticalFlipSpec{}}),
      HashOf({ResizeSpec{.height = 1, .width = 2}}),
      HashOf({ResizeSpec{.height = 2, .width = 1}}),
      HashOf({ResizeSpec{.shorter_edge = 2}}),
      HashOf({ResizeSpec{.shorter_edge = 2, .max_size = 3}}),
      HashOf({ResizeSpec{.max_size = 3}}),
      HashOf({ResizeSpec{.max_size = 3, .antialias = false}}),
      HashOf({ResizeSpec{.max_size = 3,
                         .interpolation = InterpolationMode::kNearest}}),
      HashOf({ResizedCropSpec{1, 2, 3, 4, 5, 6}}),
      HashOf({ResizedCropSpec{1, 2, 3, 4, 6, 5}}),
      HashOf({RandomResizedCropSpec{1, 2}}),
      HashOf({RandomResizedCropSpec{1, 2, {0.5, 1}}}),
      HashOf({RandomResizedCropSpec{1, 2, {0.5, 1}, {0.5, 1}}}),
      HashOf({RotateSpec{}}),
      HashOf({RotateSpec{.angle = 1}}),
      HashOf({RotateSpec{.angle = 1 + 1e-12}}),
      HashOf({RotateSpec{.expand = true}}),
      HashOf({RotateSpec{.center = PointXy{0, 0}}}),
      HashOf({RotateSpec{.fill = {1}}}),
      HashOf({RandomRotationSpec{.degrees = {-1, 1}}}),
      HashOf({RandomRotationSpec{.degrees = {-1, 2}}}),
      HashOf({RandomRotationSpec{.center = PointXy{1, 2}}}),
      HashOf({AffineSpec{}}),
      HashOf({AffineSpec{.angle = 1}}),
      HashOf({AffineSpec{.translate = {1, 0}}}),
      HashOf({AffineSpec{.translate = {0, 1}}}),
      HashOf({AffineSpec{.scale = 2}}),
      HashOf({AffineSpec{.shear = {1, 0}}}),
      HashOf({AffineSpec{.shear = {0, 1}}}),
      HashOf({RandomAffineSpec{}}),
      HashOf({RandomAffineSpec{.translate = PointXy{0, 0}}}),
      HashOf({RandomAffineSpec{.scale = Interval{1, 1}}}),
      HashOf({RandomAffineSpec{.shear_x = Interval{1, 1}}}),
      HashOf({RandomAffineSpec{.shear_y = Interval{1, 1}}}),
      HashOf({ColorJitterSpec{}}),
      HashOf({ColorJitterSpec{.brightness = Interval{0.5, 1}}}),
      HashOf({ColorJitterSpec{.contrast = Interval{0.5, 1}}}),
      HashOf({ColorJitterSpec{.saturation = Interval{0.5, 1}}}),
      HashOf({ColorJitterSpec{.hue = Interval{0.5, 1}}}),
      HashOf({AdjustBrightnessSpec{1}}),
      HashOf({AdjustBrightnessSpec{2}}),
      HashOf({AdjustContrastSpec{1}}),
      HashOf({AdjustSaturationSpec{1}}),
      HashOf({AdjustHueSpec{1}}),
      HashOf({AdjustSharpnessSpec{1}}),
      HashOf({GrayscaleSpec{1}}),
      HashOf({GrayscaleSpec{3}}),
      HashOf({RandomGrayscaleSpec{}}),
      HashOf({RandomGrayscaleSpec{0.5}}),
      HashOf({InvertSpec{}}),
      HashOf({RandomInvertSpec{}}),
      HashOf({PosterizeSpec{1}}),
      HashOf({PosterizeSpec{2}}),
      HashOf({RandomPosterizeSpec{1}}),
      HashOf({RandomPosterizeSpec{1, 0.25}}),
      HashOf({SolarizeSpec{1}}),
      HashOf({RandomSolarizeSpec{1}}),
      HashOf({RandomSolarizeSpec{1, 0.25}}),
      HashOf({RandomAdjustSharpnessSpec{1}}),
      HashOf({RandomAdjustSharpnessSpec{1, 0.25}}),
      HashOf({AutocontrastSpec{}}),
      HashOf({RandomAutocontrastSpec{}}),
      HashOf({EqualizeSpec{}}),
      HashOf({RandomEqualizeSpec{}}),
      HashOf({GaussianBlurSpec{3, 5}}),
      HashOf({GaussianBlurSpec{5, 3}}),
      HashOf({GaussianBlurSpec{5, 3, {1, 1}}}),
      HashOf({EraseSpec{1, 2, 3, 4}}),
      HashOf({EraseSpec{1, 2, 3, 4, {5}}}),
      HashOf({RandomErasingSpec{}}),
      HashOf({RandomErasingSpec{.p = 0.25}}),
      HashOf({RandomErasingSpec{.scale = {0.1, 0.33}}}),
      HashOf({RandomErasingSpec{.ratio = {0.1, 0.33}}}),
      HashOf({RandomErasingSpec{.value = {1, 2, 3}}}),
      HashOf({RandomErasingSpec{.is_value_random = true}}),
      HashOf({CutoutSpec{8}}),
      HashOf({CutoutSpec{8, {1}}}),
      HashOf({RandomApplySpec{}}),
      HashOf({RandomApplySpec{.p = 0.25}}),
      HashOf({RandomApplySpec{{PadSpec{}}}}),
      HashOf({RandomApplySpec{{PadSpec{}}}, PadSpec{}}),
      HashOf({RandomApplySpec{{PadSpec{}, PadSpec{}}}}),
      HashOf({MixUpSpec{.num_classes = 10}}),
      HashOf({MixUpSpec{.num_classes = 11}}),
      HashOf({MixUpSpec{.alpha = 0.5, .num_classes = 10}}),
      HashOf({MixUpSpec{.num_classes = 10, .per_sample = true}}),
      HashOf({MixUpSpec{.num_classes = 10, .labels = "fine"}}),
      HashOf({CutMixSpec{.num_classes = 10}}),
      HashOf({WithDrawId(RandomVerticalFlipSpec{}, 1)}),
      HashOf({WithDrawId(RandomVerticalFlipSpec{}, 2)}),
  };
  const std::set<std::string> distinct(hashes.begin(), hashes.end());
  EXPECT_EQ(distinct.size(), hashes.size());
  for (const std::string& hash : hashes) {
    EXPECT_THAT(hash, ::testing::MatchesRegex("[0-9a-f]{64}"));
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
            HashOf({PadSpec{.fill = {9}, .padding_mode = PaddingMode::kEdge}}));
  EXPECT_EQ(HashOf({NormalizeSpec{{0.5, 0.5, 0.5}, {0.1}}}),
            HashOf({NormalizeSpec{{0.5}, {0.1f, 0.1f, 0.1f}}}));
  EXPECT_EQ(HashOf({RotateSpec{.angle = 0.0}}),
            HashOf({RotateSpec{.angle = -0.0, .fill = {0, 0, 0}}}));
  EXPECT_EQ(HashOf({ResizeSpec{.interpolation = InterpolationMode::kNearest}}),
            HashOf({ResizeSpec{.interpolation = InterpolationMode::kNearest,
                               .antialias = false}}));
}

}  // namespace
}  // namespace datasetd
