#include "server/pipeline/transforms_hash.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;
using ::datasetd::testing::WithDrawId;

std::string HashOf(Transforms ops, Layout layout = Layout::kNchw,
                   std::string name = "image") {
  const std::vector<FieldPipeline> pipelines = {
      {std::move(name), std::move(ops), layout}};
  return TransformsHash(pipelines);
}

TEST(TransformsHashTest, IsStable) {
  // A change here breaks resuming from a checkpoint.
  EXPECT_EQ(
      HashOf({Op("random_crop { height: 32 width: 32 padding { left: 4 top: 4 "
                 "right: 4 bottom: 4 } padding_mode: PADDING_MODE_REFLECT }"),
              Op("random_horizontal_flip {}"),
              Op("to_dtype { dtype: DTYPE_FLOAT16 scale: true }"),
              Op("normalize { mean: [0.5, 0.25, 0.125] std: 0.2 }")},
             Layout::kNhwc),
      "3fc3f4a8cf3d891758a2b39aab519f8a623370eaca376eb2827603b9b02c1bd5");
}

TEST(TransformsHashTest, EveryParameterCounts) {
  const std::vector<std::string> hashes = {
      TransformsHash({}),
      HashOf({}),
      HashOf({}, Layout::kNhwc),
      HashOf({}, Layout::kNchw, "mask"),
      HashOf({Op("pad {}")}),
      HashOf({Op("pad {}"), Op("pad {}")}),
      HashOf({Op("pad { padding { left: 1 top: 0 right: 0 bottom: 0 } }")}),
      HashOf({Op("pad { padding { left: 0 top: 1 right: 0 bottom: 0 } }")}),
      HashOf({Op("pad { padding { left: 0 top: 0 right: 1 bottom: 0 } }")}),
      HashOf({Op("pad { padding { left: 0 top: 0 right: 0 bottom: 1 } }")}),
      HashOf({Op("pad { padding { left: 11 top: 1 right: 0 bottom: 0 } }")}),
      HashOf({Op("pad { padding { left: 1 top: 11 right: 0 bottom: 0 } }")}),
      HashOf({Op("pad { fill: 1 }")}),
      HashOf({Op("pad { fill: [1, 2, 3] }")}),
      HashOf({Op("pad { padding_mode: PADDING_MODE_EDGE }")}),
      HashOf({Op("pad { padding_mode: PADDING_MODE_REFLECT }")}),
      HashOf({Op("center_crop { height: 1 width: 2 }")}),
      HashOf({Op("center_crop { height: 2 width: 1 }")}),
      HashOf({Op("random_crop { height: 1 width: 2 }")}),
      HashOf({Op("random_crop { height: 2 width: 1 }")}),
      HashOf({Op("random_crop { height: 1 width: 2 pad_if_needed: true }")}),
      HashOf({Op("random_crop { height: 1 width: 2 padding { left: 1 top: 1 "
                 "right: 1 bottom: 1 } }")}),
      HashOf({Op("random_horizontal_flip {}")}),
      HashOf({Op("random_horizontal_flip { p: 0.25 }")}),
      HashOf({Op("random_vertical_flip {}")}),
      HashOf({Op("alternating_flip {}")}),
      HashOf({Op("alternating_flip {}"), Op("random_vertical_flip {}")}),
      HashOf({Op("random_vertical_flip {}"), Op("alternating_flip {}")}),
      HashOf({Op("to_dtype { dtype: DTYPE_FLOAT32 }")}),
      HashOf({Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }")}),
      HashOf({Op("to_dtype { dtype: DTYPE_FLOAT16 }")}),
      HashOf({Op("normalize { mean: 0.5 std: 0.25 }")}),
      HashOf({Op("normalize { mean: 0.25 std: 0.5 }")}),
      HashOf({Op("normalize { mean: [0.5, 0.25] std: 0.25 }")}),
      HashOf({Op("normalize { mean: 0.5 std: [0.25, 0.25, 0.125] }")}),
      HashOf({Op("crop { top: 1 left: 2 height: 3 width: 4 }")}),
      HashOf({Op("crop { top: 2 left: 1 height: 3 width: 4 }")}),
      HashOf({Op("crop { top: 1 left: 2 height: 4 width: 3 }")}),
      HashOf({Op("crop { top: -1 left: 2 height: 3 width: 4 }")}),
      HashOf({Op("horizontal_flip {}")}),
      HashOf({Op("vertical_flip {}")}),
      HashOf({Op("resize { size { height: 1 width: 2 } }")}),
      HashOf({Op("resize { size { height: 2 width: 1 } }")}),
      HashOf({Op("resize { shorter_edge: 2 }")}),
      HashOf({Op("resize { shorter_edge: 2 max_size: 3 }")}),
      HashOf({Op("resize { max_size: 3 }")}),
      HashOf({Op("resize { max_size: 3 antialias: false }")}),
      HashOf({Op(
          "resize { max_size: 3 interpolation: INTERPOLATION_MODE_NEAREST }")}),
      HashOf({Op("resized_crop { top: 1 left: 2 height: 3 width: 4 size { "
                 "height: 5 width: 6 } }")}),
      HashOf({Op("resized_crop { top: 1 left: 2 height: 3 width: 4 size { "
                 "height: 6 width: 5 } }")}),
      HashOf({Op("random_resized_crop { size { height: 1 width: 2 } }")}),
      HashOf({Op("random_resized_crop { size { height: 1 width: 2 } scale { "
                 "min: 0.5 max: 1 } }")}),
      HashOf({Op("random_resized_crop { size { height: 1 width: 2 } scale { "
                 "min: 0.5 max: 1 } ratio { min: 0.5 max: 1 } }")}),
      HashOf({Op("rotate {}")}),
      HashOf({Op("rotate { angle: 1 }")}),
      HashOf({Op("rotate { angle: $0 }", 1 + 1e-12)}),
      HashOf({Op("rotate { expand: true }")}),
      HashOf({Op("rotate { center { x: 0 y: 0 } }")}),
      HashOf({Op("rotate { fill: 1 }")}),
      HashOf({Op("random_rotation { degrees { min: -1 max: 1 } }")}),
      HashOf({Op("random_rotation { degrees { min: -1 max: 2 } }")}),
      HashOf({Op("random_rotation { center { x: 1 y: 2 } }")}),
      HashOf({Op("affine {}")}),
      HashOf({Op("affine { angle: 1 }")}),
      HashOf({Op("affine { translate { x: 1 y: 0 } }")}),
      HashOf({Op("affine { translate { x: 0 y: 1 } }")}),
      HashOf({Op("affine { scale: 2 }")}),
      HashOf({Op("affine { shear { x: 1 y: 0 } }")}),
      HashOf({Op("affine { shear { x: 0 y: 1 } }")}),
      HashOf({Op("random_affine {}")}),
      HashOf({Op("random_affine { translate { x: 0 y: 0 } }")}),
      HashOf({Op("random_affine { scale { min: 1 max: 1 } }")}),
      HashOf({Op("random_affine { shear_x { min: 1 max: 1 } }")}),
      HashOf({Op("random_affine { shear_y { min: 1 max: 1 } }")}),
      HashOf({Op("color_jitter {}")}),
      HashOf({Op("color_jitter { brightness { min: 0.5 max: 1 } }")}),
      HashOf({Op("color_jitter { contrast { min: 0.5 max: 1 } }")}),
      HashOf({Op("color_jitter { saturation { min: 0.5 max: 1 } }")}),
      HashOf({Op("color_jitter { hue { min: 0.5 max: 1 } }")}),
      HashOf({Op("adjust_brightness { brightness_factor: 1 }")}),
      HashOf({Op("adjust_brightness { brightness_factor: 2 }")}),
      HashOf({Op("adjust_contrast { contrast_factor: 1 }")}),
      HashOf({Op("adjust_saturation { saturation_factor: 1 }")}),
      HashOf({Op("adjust_hue { hue_factor: 1 }")}),
      HashOf({Op("adjust_sharpness { sharpness_factor: 1 }")}),
      HashOf({Op("grayscale { num_output_channels: 1 }")}),
      HashOf({Op("grayscale { num_output_channels: 3 }")}),
      HashOf({Op("random_grayscale {}")}),
      HashOf({Op("random_grayscale { p: 0.5 }")}),
      HashOf({Op("invert {}")}),
      HashOf({Op("random_invert {}")}),
      HashOf({Op("posterize { bits: 1 }")}),
      HashOf({Op("posterize { bits: 2 }")}),
      HashOf({Op("random_posterize { bits: 1 }")}),
      HashOf({Op("random_posterize { bits: 1 p: 0.25 }")}),
      HashOf({Op("solarize { threshold: 1 }")}),
      HashOf({Op("random_solarize { threshold: 1 }")}),
      HashOf({Op("random_solarize { threshold: 1 p: 0.25 }")}),
      HashOf({Op("random_adjust_sharpness { sharpness_factor: 1 }")}),
      HashOf({Op("random_adjust_sharpness { sharpness_factor: 1 p: 0.25 }")}),
      HashOf({Op("autocontrast {}")}),
      HashOf({Op("random_autocontrast {}")}),
      HashOf({Op("equalize {}")}),
      HashOf({Op("random_equalize {}")}),
      HashOf({Op("gaussian_blur { kernel_size { height: 3 width: 5 } }")}),
      HashOf({Op("gaussian_blur { kernel_size { height: 5 width: 3 } }")}),
      HashOf({Op("gaussian_blur { kernel_size { height: 5 width: 3 } sigma { "
                 "min: 1 max: 1 } }")}),
      HashOf({Op("erase { top: 1 left: 2 height: 3 width: 4 }")}),
      HashOf({Op("erase { top: 1 left: 2 height: 3 width: 4 value: 5 }")}),
      HashOf({Op("random_erasing {}")}),
      HashOf({Op("random_erasing { p: 0.25 }")}),
      HashOf({Op("random_erasing { scale { min: 0.1 max: 0.33 } }")}),
      HashOf({Op("random_erasing { ratio { min: 0.1 max: 0.33 } }")}),
      HashOf({Op("random_erasing { value: [1, 2, 3] }")}),
      HashOf({Op("random_erasing { is_value_random: true }")}),
      HashOf({Op("cutout { size: 8 }")}),
      HashOf({Op("cutout { size: 8 fill: 1 }")}),
      HashOf({Op("random_apply {}")}),
      HashOf({Op("random_apply { p: 0.25 }")}),
      HashOf({Op("random_apply { transforms { pad {} } }")}),
      HashOf({Op("random_apply { transforms { pad {} } }"), Op("pad {}")}),
      HashOf(
          {Op("random_apply { transforms { pad {} } transforms { pad {} } }")}),
      HashOf({Op("mix_up { num_classes: 10 }")}),
      HashOf({Op("mix_up { num_classes: 11 }")}),
      HashOf({Op("mix_up { alpha: 0.5 num_classes: 10 }")}),
      HashOf({Op("mix_up { num_classes: 10 per_sample: true }")}),
      HashOf({Op("mix_up { num_classes: 10 labels: 'fine' }")}),
      HashOf({Op("cut_mix { num_classes: 10 }")}),
      HashOf({WithDrawId(Op("random_vertical_flip {}"), 1)}),
      HashOf({WithDrawId(Op("random_vertical_flip {}"), 2)}),
  };
  const std::set<std::string> distinct(hashes.begin(), hashes.end());
  EXPECT_EQ(distinct.size(), hashes.size());
  for (const std::string& hash : hashes) {
    EXPECT_THAT(hash, ::testing::MatchesRegex("[0-9a-f]{64}"));
  }
}

TEST(TransformsHashTest, FieldsAreKeptApart) {
  const std::vector<FieldPipeline> a = {{"a", {Op("pad {}")}}, {"b", {}}};
  const std::vector<FieldPipeline> b = {{"a", {}}, {"b", {Op("pad {}")}}};
  const std::vector<FieldPipeline> swapped = {{"b", {}}, {"a", {Op("pad {}")}}};
  EXPECT_NE(TransformsHash(a), TransformsHash(b));
  EXPECT_NE(TransformsHash(a), TransformsHash(swapped));
  // A name that looks like the canonical text of two fields.
  const std::vector<FieldPipeline> two = {{"a", {}}, {"b", {}}};
  const std::vector<FieldPipeline> one = {{"a NCHW\nfield 1 b", {}}};
  EXPECT_NE(TransformsHash(two), TransformsHash(one));
}

TEST(TransformsHashTest, AnEdgeThatFadesOutIsNoFillOfZero) {
  for (const char* op : {"rotate", "random_rotation", "affine", "random_affine",
                         "random_perspective", "rand_augment",
                         "trivial_augment_wide", "auto_augment"}) {
    const auto hash_of = [&](const char* mode, const char* fill) {
      return HashOf(
          {Op(absl::StrCat(op, " { interpolation: INTERPOLATION_MODE_", mode,
                           " ", fill, " }"))});
    };
    EXPECT_NE(hash_of("BILINEAR", ""), hash_of("BILINEAR", "fill: 0")) << op;
    EXPECT_EQ(hash_of("NEAREST", ""), hash_of("NEAREST", "fill: 0")) << op;
  }
}

TEST(TransformsHashTest, WaysToSayTheSameAreEqual) {
  EXPECT_EQ(HashOf({Op("pad {}")}), HashOf({Op("pad { fill: 0 }")}));
  EXPECT_EQ(HashOf({Op("pad {}")}), HashOf({Op("pad { fill: [0, 0, -0.0] }")}));
  EXPECT_EQ(HashOf({Op("pad { padding_mode: PADDING_MODE_EDGE }")}),
            HashOf({Op("pad { fill: 9 padding_mode: PADDING_MODE_EDGE }")}));
  EXPECT_EQ(HashOf({Op("normalize { mean: [0.5, 0.5, 0.5] std: 0.1 }")}),
            HashOf({Op("normalize { mean: 0.5 std: [0.1, 0.1, 0.1] }")}));
  EXPECT_EQ(HashOf({Op("rotate { angle: 0.0 }")}),
            HashOf({Op("rotate { angle: -0.0 fill: [0, 0, 0] }")}));
  EXPECT_EQ(
      HashOf({Op("resize { interpolation: INTERPOLATION_MODE_NEAREST }")}),
      HashOf({Op("resize { interpolation: INTERPOLATION_MODE_NEAREST "
                 "antialias: false }")}));
}

}  // namespace
}  // namespace datasetd
