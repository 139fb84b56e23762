#include "server/service/transform_convert.h"

#include <google/protobuf/util/json_util.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/transforms_hash.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<TransformSpec>> Convert(const std::string& list) {
  v1::Pipeline pipeline;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      absl::StrCat("{\"transforms\": ", list, "}"), &pipeline);
  EXPECT_TRUE(parsed.ok()) << std::string(parsed.message());
  return TransformsFromProto(pipeline.transforms(), "transforms");
}

// The spec of `{name: parameters}`.
template <typename Spec>
Spec One(const std::string& name, const std::string& parameters) {
  const auto specs =
      Convert(absl::StrCat("[{\"", name, "\": ", parameters, "}]"));
  EXPECT_THAT(specs.status(), IsOk());
  if (!specs.ok() || specs->size() != 1) return Spec();
  EXPECT_TRUE(std::holds_alternative<Spec>((*specs)[0].op)) << name;
  const Spec* const spec = std::get_if<Spec>(&(*specs)[0].op);
  return spec == nullptr ? Spec() : *spec;
}

std::string HashOf(const TransformSpec& transform) {
  const std::vector<FieldPipeline> pipelines = {{"image", {transform}}};
  return TransformsHash(pipelines);
}

// Two specs with the same parameters.
MATCHER_P(IsSpec, expected, "") { return HashOf(arg) == HashOf(expected); }

TEST(TransformConvertTest, EveryParameterArrives) {
  EXPECT_THAT(One<PadSpec>("pad",
                           R"({"padding": {"left": 1, "top": 2, "right": 3,
                       "bottom": 4}, "fill": [5, 6, 7]})"),
              IsSpec(PadSpec{{1, 2, 3, 4}, {5, 6, 7}}));
  EXPECT_THAT(One<CropSpec>("crop", R"({"top": -1, "left": -2, "height": 3,
                                        "width": 4})"),
              IsSpec(CropSpec{-1, -2, 3, 4}));
  EXPECT_THAT(
      One<RandomCropSpec>("random_crop",
                          R"({"height": 1, "width": 2, "pad_if_needed": true,
                              "padding": {"left": 3}, "fill": [4],
                              "padding_mode": "PADDING_MODE_EDGE"})"),
      IsSpec(
          RandomCropSpec{1, 2, {3, 0, 0, 0}, true, {4}, PaddingMode::kEdge}));
  EXPECT_THAT(
      One<ResizeSpec>("resize", R"({"size": {"height": 1, "width": 2},
                                    "interpolation":
                                    "INTERPOLATION_MODE_NEAREST_EXACT"})"),
      IsSpec(ResizeSpec{1, 2, 0, 0, InterpolationMode::kNearestExact, true}));
  EXPECT_THAT(
      One<ResizeSpec>("resize", R"({"shorter_edge": 3, "max_size": 4,
                                            "antialias": false})"),
      IsSpec(ResizeSpec{0, 0, 3, 4, InterpolationMode::kBilinear, false}));
  EXPECT_THAT(
      One<ResizedCropSpec>("resized_crop",
                           R"({"top": 1, "left": 2, "height": 3, "width": 4,
              "size": {"height": 5, "width": 6}, "antialias": false,
              "interpolation": "INTERPOLATION_MODE_BICUBIC"})"),
      IsSpec(ResizedCropSpec{1, 2, 3, 4, 5, 6, InterpolationMode::kBicubic,
                             false}));
  EXPECT_THAT(
      One<RandomResizedCropSpec>("random_resized_crop",
                                 R"({"size": {"height": 5, "width": 6},
              "scale": {"min": 0.25, "max": 0.5},
              "ratio": {"min": 0.75, "max": 1.5}, "antialias": false,
              "interpolation": "INTERPOLATION_MODE_BICUBIC"})"),
      IsSpec(RandomResizedCropSpec{
          5, 6, {0.25, 0.5}, {0.75, 1.5}, InterpolationMode::kBicubic, false}));
  EXPECT_THAT(One<RotateSpec>("rotate",
                              R"({"angle": 30, "expand": true, "fill": [1],
                          "center": {"x": 2, "y": 3},
                          "interpolation": "INTERPOLATION_MODE_BILINEAR"})"),
              IsSpec(RotateSpec{
                  30, InterpolationMode::kBilinear, true, PointXy{2, 3}, {1}}));
  EXPECT_THAT(
      One<RandomRotationSpec>(
          "random_rotation",
          R"({"degrees": {"min": -3, "max": 4}, "expand": true, "fill": [1],
              "center": {"x": 2, "y": 3},
              "interpolation": "INTERPOLATION_MODE_BILINEAR"})"),
      IsSpec(RandomRotationSpec{
          {-3, 4}, InterpolationMode::kBilinear, true, PointXy{2, 3}, {1}}));
  EXPECT_THAT(One<AffineSpec>("affine",
                              R"({"angle": 30, "translate": {"x": 1, "y": 2},
                          "scale": 1.5, "shear": {"x": 3, "y": 4},
                          "fill": [1], "center": {"x": 5, "y": 6},
                          "interpolation": "INTERPOLATION_MODE_BILINEAR"})"),
              IsSpec(AffineSpec{30,
                                {1, 2},
                                1.5,
                                {3, 4},
                                InterpolationMode::kBilinear,
                                {1},
                                PointXy{5, 6}}));
  EXPECT_THAT(One<RandomAffineSpec>("random_affine",
                                    R"({"degrees": {"min": -3, "max": 4},
              "translate": {"x": 0.25, "y": 0.5},
              "scale": {"min": 0.5, "max": 2},
              "shear_x": {"min": -1, "max": 1},
              "shear_y": {"min": -2, "max": 2}, "fill": [1],
              "center": {"x": 5, "y": 6},
              "interpolation": "INTERPOLATION_MODE_BILINEAR"})"),
              IsSpec(RandomAffineSpec{{-3, 4},
                                      PointXy{0.25, 0.5},
                                      Interval{0.5, 2},
                                      Interval{-1, 1},
                                      Interval{-2, 2},
                                      InterpolationMode::kBilinear,
                                      {1},
                                      PointXy{5, 6}}));
  EXPECT_THAT(One<ColorJitterSpec>("color_jitter",
                                   R"({"brightness": {"min": 0.5, "max": 1.5},
                               "contrast": {"min": 0.25, "max": 1.25},
                               "saturation": {"min": 0, "max": 2},
                               "hue": {"min": -0.25, "max": 0.5}})"),
              IsSpec(ColorJitterSpec{Interval{0.5, 1.5}, Interval{0.25, 1.25},
                                     Interval{0, 2}, Interval{-0.25, 0.5}}));
  EXPECT_THAT(One<AdjustBrightnessSpec>("adjust_brightness",
                                        R"({"brightness_factor": 2})"),
              IsSpec(AdjustBrightnessSpec{2}));
  EXPECT_THAT(
      One<AdjustContrastSpec>("adjust_contrast", R"({"contrast_factor": 2})"),
      IsSpec(AdjustContrastSpec{2}));
  EXPECT_THAT(One<AdjustSaturationSpec>("adjust_saturation",
                                        R"({"saturation_factor": 2})"),
              IsSpec(AdjustSaturationSpec{2}));
  EXPECT_THAT(One<AdjustHueSpec>("adjust_hue", R"({"hue_factor": 0.25})"),
              IsSpec(AdjustHueSpec{0.25}));
  EXPECT_THAT(One<AdjustSharpnessSpec>("adjust_sharpness",
                                       R"({"sharpness_factor": 2})"),
              IsSpec(AdjustSharpnessSpec{2}));
  EXPECT_THAT(
      One<RandomAdjustSharpnessSpec>("random_adjust_sharpness",
                                     R"({"sharpness_factor": 2, "p": 0.25})"),
      IsSpec(RandomAdjustSharpnessSpec{2, 0.25}));
  EXPECT_THAT(One<GrayscaleSpec>("grayscale", R"({"num_output_channels": 3})"),
              IsSpec(GrayscaleSpec{3}));
  EXPECT_THAT(One<PosterizeSpec>("posterize", R"({"bits": 3})"),
              IsSpec(PosterizeSpec{3}));
  EXPECT_THAT(
      One<RandomPosterizeSpec>("random_posterize", R"({"bits": 3, "p": 0})"),
      IsSpec(RandomPosterizeSpec{3, 0}));
  EXPECT_THAT(One<SolarizeSpec>("solarize", R"({"threshold": 3})"),
              IsSpec(SolarizeSpec{3}));
  EXPECT_THAT(
      One<RandomSolarizeSpec>("random_solarize", R"({"threshold": 3, "p": 0})"),
      IsSpec(RandomSolarizeSpec{3, 0}));
  EXPECT_THAT(
      One<GaussianBlurSpec>("gaussian_blur",
                            R"({"kernel_size": {"height": 3, "width": 5},
                                "sigma": {"min": 1, "max": 2}})"),
      IsSpec(GaussianBlurSpec{3, 5, {1, 2}}));
  EXPECT_THAT(One<EraseSpec>("erase", R"({"top": 1, "left": 2, "height": 3,
                                          "width": 4, "value": [5, 6, 7]})"),
              IsSpec(EraseSpec{1, 2, 3, 4, {5, 6, 7}}));
  EXPECT_THAT(
      One<RandomErasingSpec>("random_erasing",
                             R"({"p": 0.25, "scale": {"min": 0.5, "max": 1},
                                 "ratio": {"min": 1, "max": 2},
                                 "is_value_random": true})"),
      IsSpec(RandomErasingSpec{0.25, {0.5, 1}, {1, 2}, {}, true}));
  EXPECT_THAT(One<CutoutSpec>("cutout", R"({"size": 8, "fill": [1]})"),
              IsSpec(CutoutSpec{8, {1}}));
  EXPECT_THAT(One<MixUpSpec>("mix_up", R"({"alpha": 0.5, "num_classes": 10,
                                           "per_sample": true,
                                           "labels": "fine"})"),
              IsSpec(MixUpSpec{0.5, 10, true, "fine"}));
  EXPECT_THAT(One<CutMixSpec>("cut_mix", R"({"alpha": 0.5, "num_classes": 10,
                                             "per_sample": true,
                                             "labels": "fine"})"),
              IsSpec(CutMixSpec{0.5, 10, true, "fine"}));
}

TEST(TransformConvertTest, WhatIsUnsetIsTorchvisionsDefault) {
  EXPECT_THAT(One<RandomGrayscaleSpec>("random_grayscale", "{}").p, 0.1);
  EXPECT_THAT(One<RandomInvertSpec>("random_invert", "{}").p, 0.5);
  EXPECT_THAT(One<RandomAutocontrastSpec>("random_autocontrast", "{}").p, 0.5);
  EXPECT_THAT(One<RandomEqualizeSpec>("random_equalize", R"({"p": 0})").p, 0);
  EXPECT_THAT(One<RandomHorizontalFlipSpec>("random_horizontal_flip", "{}").p,
              0.5);
  EXPECT_THAT(One<RandomVerticalFlipSpec>("random_vertical_flip", "{}").p, 0.5);
  EXPECT_THAT(One<GrayscaleSpec>("grayscale", "{}").num_output_channels, 1);
  EXPECT_THAT(One<RandomResizedCropSpec>("random_resized_crop", "{}"),
              IsSpec(RandomResizedCropSpec{0,
                                           0,
                                           {0.08, 1.0},
                                           {3.0 / 4.0, 4.0 / 3.0},
                                           InterpolationMode::kBilinear,
                                           true}));
  EXPECT_EQ(One<RandomAffineSpec>("random_affine", "{}").interpolation,
            InterpolationMode::kNearest);
  EXPECT_THAT(One<RandomErasingSpec>("random_erasing", "{}"),
              IsSpec(RandomErasingSpec{0.5, {0.02, 0.33}, {0.3, 3.3}}));
  EXPECT_THAT(One<GaussianBlurSpec>("gaussian_blur", "{}").sigma.max, 2.0);
  EXPECT_THAT(One<MixUpSpec>("mix_up", "{}"), IsSpec(MixUpSpec{1.0, 0}));
}

TEST(TransformConvertTest, EveryOpOfTheWireHasASpec) {
  const auto* const op = v1::Transform::descriptor()->FindOneofByName("op");
  std::set<std::string> names;
  for (int i = 0; i < op->field_count(); ++i) {
    v1::Transform transform;
    const auto* const field = op->field(i);
    transform.GetReflection()->MutableMessage(&transform, field);
    if (transform.has_to_dtype()) {
      transform.mutable_to_dtype()->set_dtype(v1::DTYPE_FLOAT32);
    }
    v1::Pipeline pipeline;
    *pipeline.add_transforms() = transform;
    const auto specs = TransformsFromProto(pipeline.transforms(), "transforms");
    ASSERT_THAT(specs.status(), IsOk()) << field->name();
    EXPECT_EQ(TransformName((*specs)[0]), field->message_type()->name());
    names.insert(TransformName((*specs)[0]));
  }
  EXPECT_EQ(names.size(), std::variant_size_v<OpSpec>);
}

TEST(TransformConvertTest, GroupsAndSharedDrawsArrive) {
  const auto specs = Convert(
      R"([{"random_apply": {"p": 0.25, "transforms": [
             {"random_vertical_flip": {}, "draw_id": 3}, {"invert": {}}]},
           "draw_id": 2}])");
  ASSERT_THAT(specs.status(), IsOk());
  EXPECT_EQ((*specs)[0].draw_id, 2u);
  const auto& group = std::get<RandomApplySpec>((*specs)[0].op);
  EXPECT_EQ(group.p, 0.25);
  ASSERT_EQ(group.transforms.size(), 2u);
  EXPECT_EQ(group.transforms[0].draw_id, 3u);
  EXPECT_TRUE(std::holds_alternative<InvertSpec>(group.transforms[1].op));
}

TEST(TransformConvertTest, ErrorsNameThePlaceAndTheParameter) {
  const auto message_of = [](const std::string& list) {
    const absl::Status status = Convert(list).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message_of(R"([{"invert": {}}, {}])"),
              AllOf(HasSubstr("transforms[1]"), HasSubstr("unknown transform"),
                    HasSubstr("older than the client")));
  EXPECT_THAT(message_of(R"([{"pad": {"padding_mode": 9}}])"),
              AllOf(HasSubstr("transforms[0]"), HasSubstr("padding_mode: 9"),
                    HasSubstr("reflect")));
  EXPECT_THAT(message_of(R"([{"rotate": {"interpolation": 9}}])"),
              AllOf(HasSubstr("interpolation: 9"), HasSubstr("bilinear")));
  EXPECT_THAT(message_of(R"([{"to_dtype": {}}])"), HasSubstr("dtype 0"));
  EXPECT_THAT(message_of(R"([{"invert": {}, "draw_id": 65536}])"),
              AllOf(HasSubstr("draw_id: 65536"), HasSubstr("0 to 65535")));
  EXPECT_THAT(message_of(R"([{"resize": {"size": {}, "shorter_edge": 1}}])"),
              HasSubstr("size and shorter_edge"));
  EXPECT_THAT(message_of(
                  R"([{"random_erasing": {"value": [1],
                                          "is_value_random": true}}])"),
              HasSubstr("value and is_value_random"));
  EXPECT_THAT(
      message_of(R"([{"random_apply": {"transforms": [{"invert": {}}, {}]}}])"),
      HasSubstr("transforms[0]: transforms[1]: unknown transform"));
}

}  // namespace
}  // namespace datasetd
