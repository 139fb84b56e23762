#include "server/pipeline/pipeline.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cuda/kernels/ops/op_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

FieldSpec Image(int64_t height, int64_t width, int64_t channels,
                Dtype dtype = Dtype::kUint8) {
  return {.name = "image",
          .dtype = dtype,
          .shape = {height, width, channels},
          .is_image = true};
}

FieldSpec Other(Dtype dtype, std::vector<int64_t> shape) {
  return {.name = "label", .dtype = dtype, .shape = std::move(shape)};
}

absl::StatusOr<FieldProgram> Compile(const FieldSpec& field, Transforms ops) {
  return CompileField(field, 0, ops, Layout::kNchw);
}

FieldProgram MustCompile(const FieldSpec& field, Transforms ops) {
  auto program = Compile(field, std::move(ops));
  EXPECT_THAT(program.status(), IsOk());
  return program.ok() ? *program : FieldProgram{};
}

std::string Sides(int64_t left, int64_t top, int64_t right, int64_t bottom) {
  return absl::StrCat("left: ", left, " top: ", top, " right: ", right,
                      " bottom: ", bottom);
}
std::string Sides(int64_t all) { return Sides(all, all, all, all); }

// "HxW>HxW@top,left".
std::string Geometry(const Move& move) {
  return absl::StrCat(move.in_height, "x", move.in_width, ">", move.out_height,
                      "x", move.out_width, "@", move.top, ",", move.left);
}

v1::Transform ToFloat(Dtype dtype = Dtype::kFloat32) {
  return Op("to_dtype { dtype: $0 scale: true }", dtype);
}

// Expects INVALID_ARGUMENT at `ops[position]`, with all of `parts`.
void ExpectInvalid(const FieldSpec& field, Transforms ops, int position,
                   std::vector<std::string> parts) {
  const std::string place =
      absl::StrCat("field '", field.name, "', transforms[", position, "] ",
                   TransformName(ops[position]), ": ");
  const absl::Status status = Compile(field, ops).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(place)));
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(PipelineTest, SharedDrawsHaveOneOpIndexInEveryFieldAndPlace) {
  v1::Transform flip = Op("random_horizontal_flip {}");
  flip.set_draw_id(3);
  const Transforms alone = {flip};
  const Transforms second = {Op("random_vertical_flip {}"), flip};
  const FieldSpec image = Image(4, 4, 3);
  const auto a = CompileField(image, 0, alone, Layout::kNchw);
  const auto b = CompileField(image, 1, second, Layout::kNchw);
  ASSERT_THAT(a.status(), IsOk());
  ASSERT_THAT(b.status(), IsOk());
  EXPECT_EQ(a->moves[0].op_index, kSharedOpIndex + 3);
  EXPECT_EQ(b->moves[1].op_index, kSharedOpIndex + 3);
  EXPECT_EQ(b->moves[0].op_index, 1u << 8);
}

FieldSpec Mask() {
  FieldSpec mask = Image(4, 4, 1);
  mask.is_mask = true;
  return mask;
}

TEST(PipelineTest, MaskTakesNoColourErasingOrBatchOp) {
  const v1::Transform flip = Op("random_horizontal_flip {}");
  for (const v1::Transform& op :
       {Op("color_jitter {}"), Op("adjust_hue {}"), Op("equalize {}"),
        Op("gaussian_blur { kernel_size { height: 3 width: 3 } }"),
        Op("random_erasing {}"), Op("cutout { size: 1 }"), Op("erase {}"),
        Op("mix_up { num_classes: 2 }"), Op("cut_mix { num_classes: 2 }")}) {
    ExpectInvalid(Mask(), {flip, op}, 1, {"mask", "geometry"});
  }
  ExpectInvalid(Mask(),
                {Op("random_apply { transforms { vertical_flip {} } "
                    "transforms { invert {} } }")},
                0, {"transforms[1] Invert", "mask"});
  const FieldProgram program = MustCompile(Mask(), {flip, ToFloat()});
  EXPECT_EQ(program.num_moves, 1);
  EXPECT_EQ(program.num_value_ops, 1);
}

TEST(PipelineTest, MaskIsSampledNearest) {
  const auto resize = [](const FieldSpec& field, const std::string& mode) {
    const FieldProgram program = MustCompile(
        field, {Op("resize { size { height: 2 width: 3 } $0 }", mode)});
    return ParamsAs<ResizeParams>(program.steps[0]);
  };
  for (const char* mode : {"", "interpolation: INTERPOLATION_MODE_BICUBIC",
                           "interpolation: INTERPOLATION_MODE_NEAREST"}) {
    const ResizeParams params = resize(Mask(), mode);
    EXPECT_EQ(params.interpolation, InterpolationMode::kNearest);
    EXPECT_FALSE(params.antialias);
    EXPECT_EQ(params.clamp, 0.0f);
  }
  EXPECT_EQ(resize(Mask(), "interpolation: INTERPOLATION_MODE_NEAREST_EXACT")
                .interpolation,
            InterpolationMode::kNearestExact);
  EXPECT_EQ(resize(Image(4, 4, 1), "").interpolation,
            InterpolationMode::kBilinear);
  const FieldProgram turned = MustCompile(
      Mask(), {Op("random_apply { transforms { rotate { angle: 3 "
                  "interpolation: INTERPOLATION_MODE_BILINEAR } } }")});
  EXPECT_FALSE(ParamsAs<AffineParams>(turned.steps[0]).is_bilinear);
}

TEST(PipelineTest, ImageWithoutOpsIsACopy) {
  const FieldProgram program = MustCompile(Image(28, 30, 3), {});
  EXPECT_TRUE(program.is_image);
  EXPECT_EQ(program.in_height, 28);
  EXPECT_EQ(program.in_width, 30);
  EXPECT_EQ(program.out_height, 28);
  EXPECT_EQ(program.out_width, 30);
  EXPECT_EQ(program.channels, 3);
  EXPECT_EQ(program.in_dtype, Dtype::kUint8);
  EXPECT_EQ(program.out_dtype, Dtype::kUint8);
  EXPECT_EQ(program.layout, Layout::kNchw);
  EXPECT_EQ(program.num_moves, 0);
  EXPECT_EQ(program.num_value_ops, 0);
  EXPECT_EQ(program.source, nullptr);
}

TEST(PipelineTest, LayoutIsThatOfImagesOnly) {
  EXPECT_EQ(CompileField(Image(2, 2, 1), 0, {}, Layout::kNhwc)->layout,
            Layout::kNhwc);
  EXPECT_EQ(
      CompileField(Other(Dtype::kUint8, {}), 0, {}, Layout::kNhwc)->layout,
      Layout::kNchw);
  EXPECT_THAT(CompileField(Image(2, 2, 1), 0, {}, Layout{}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 'image': the layout")));
}

TEST(PipelineTest, TwoDimensionsAreOneChannel) {
  FieldSpec field = Image(28, 28, 1);
  field.shape = {28, 28};
  EXPECT_EQ(MustCompile(field, {}).channels, 1);
}

TEST(PipelineTest, RefusesImagesThatKernelsCannotHold) {
  struct Case {
    FieldSpec field;
    const char* part;
  };
  FieldSpec flat = Image(1, 1, 1);
  flat.shape = {784};
  for (const Case& c : std::vector<Case>{
           {flat, "1 dimensions"},
           {Image(8, 8, 0), "0 channels"},
           {Image(8, 8, 5), "5 channels"},
           {Image(0, 8, 3), "0x8"},
           {Image(8, -1, 3), "8x-1"},
           {Image(32768, 32768, 1), "1073741823 elements"},
           {Image(16384, 32768, 2), "1073741823 elements"},
           {Image(1 << 25, 2, 1), "max_side is 16777216"},
           {Image(2, (1 << 24) + 1, 1), "max_side is 16777216"},
           {Image(std::numeric_limits<int64_t>::max(), 2, 1), "elements"},
           {Image(8, 8, 3, Dtype::kInt16), "not int16"},
           {Image(8, 8, 3, Dtype::kFloat64), "not float64"}}) {
    EXPECT_THAT(
        Compile(c.field, {}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith("field 'image': "), HasSubstr(c.part))));
  }
  EXPECT_THAT(Compile(Image(32767, 32769, 1), {}), IsOk());
  EXPECT_THAT(Compile(Image(1 << 24, 32, 1), {}), IsOk());
}

TEST(PipelineTest, UsualTrainingPipeline) {
  const FieldProgram program =
      *CompileField(Image(32, 32, 3), 2,
                    {Op("random_crop { height: 32 width: 32 padding { $0 } "
                        "padding_mode: PADDING_MODE_REFLECT }",
                        Sides(4)),
                     Op("random_horizontal_flip {}"), ToFloat(Dtype::kFloat16),
                     Op("normalize { mean: [0.5, 0.25, 0.75] std: 2.0 }")},
                    Layout::kNhwc);
  ASSERT_EQ(program.num_moves, 3);
  EXPECT_EQ(program.moves[0].kind, MoveKind::kPad);
  EXPECT_EQ(program.moves[0].padding_mode, PaddingMode::kReflect);
  EXPECT_EQ(Geometry(program.moves[0]), "32x32>40x40@4,4");
  EXPECT_EQ(program.moves[1].kind, MoveKind::kRandomCrop);
  EXPECT_EQ(Geometry(program.moves[1]), "40x40>32x32@0,0");
  EXPECT_EQ(program.moves[2].kind, MoveKind::kHorizontalFlip);
  EXPECT_EQ(Geometry(program.moves[2]), "32x32>32x32@0,0");
  EXPECT_EQ(program.moves[2].probability, 0.5f);
  // Field 2; both steps of the crop are op 0.
  EXPECT_EQ(program.moves[0].op_index, 0x200u);
  EXPECT_EQ(program.moves[1].op_index, 0x200u);
  EXPECT_EQ(program.moves[2].op_index, 0x201u);
  ASSERT_EQ(program.num_value_ops, 2);
  EXPECT_EQ(program.value_ops[0].kind, ValueOpKind::kDivide);
  EXPECT_EQ(program.value_ops[0].divisor, 255.0f);
  EXPECT_EQ(program.value_ops[1].kind, ValueOpKind::kNormalize);
  EXPECT_THAT(std::vector<float>(program.value_ops[1].mean,
                                 program.value_ops[1].mean + 3),
              ::testing::ElementsAre(0.5f, 0.25f, 0.75f));
  EXPECT_THAT(std::vector<float>(program.value_ops[1].std,
                                 program.value_ops[1].std + 3),
              ::testing::ElementsAre(2.0f, 2.0f, 2.0f));
  EXPECT_EQ(program.out_dtype, Dtype::kFloat16);
  EXPECT_EQ(program.layout, Layout::kNhwc);
}

TEST(PipelineTest, PadSidesAndModes) {
  const FieldProgram program =
      MustCompile(Image(10, 20, 1),
                  {Op("pad { padding { $0 } }", Sides(1, 2, 3, 4)),
                   Op("pad { padding { $0 } padding_mode: PADDING_MODE_EDGE }",
                      Sides(0, 0, 0, 5))});
  ASSERT_EQ(program.num_moves, 2);
  EXPECT_EQ(Geometry(program.moves[0]), "10x20>16x24@2,1");
  EXPECT_EQ(program.moves[0].padding_mode, PaddingMode::kConstant);
  EXPECT_EQ(Geometry(program.moves[1]), "16x24>21x24@0,0");
  EXPECT_EQ(program.moves[1].padding_mode, PaddingMode::kEdge);
  EXPECT_EQ(program.out_height, 21);
  EXPECT_EQ(program.out_width, 24);
}

TEST(PipelineTest, OpsThatChangeNothingAreLeftOut) {
  const FieldProgram program = MustCompile(
      Image(8, 9, 3), {Op("pad {}"), Op("center_crop { height: 8 width: 9 }"),
                       Op("random_crop { height: 8 width: 9 }"),
                       Op("random_horizontal_flip { p: 0 }"),
                       Op("to_dtype { dtype: DTYPE_UINT8 }"),
                       Op("random_vertical_flip { p: 1 }")});
  ASSERT_EQ(program.num_moves, 1);
  EXPECT_EQ(program.moves[0].kind, MoveKind::kVerticalFlip);
  EXPECT_EQ(program.moves[0].probability, 1.0f);
  EXPECT_EQ(program.moves[0].op_index, 5u) << "the place in the user's list";
  EXPECT_EQ(program.num_value_ops, 0);
}

TEST(PipelineTest, AlternatingFlip) {
  const FieldProgram program =
      MustCompile(Image(8, 8, 3), {Op("alternating_flip {}")});
  ASSERT_EQ(program.num_moves, 1);
  EXPECT_EQ(program.moves[0].kind, MoveKind::kAlternatingFlip);
}

TEST(PipelineTest, PaddingOutOfRange) {
  ExpectInvalid(Image(8, 8, 3), {Op("pad { padding { right: $0 } }", 1u << 30)},
                0, {"padding.right is 1073741824", "0..1073741823"});
  ExpectInvalid(Image(8, 8, 3), {Op("pad { padding { $0 } }", Sides(1 << 20))},
                0, {"2097160x2097160", "elements"});
  ExpectInvalid(Image(8, 8, 3), {Op("pad { padding_mode: 9 }")}, 0,
                {"padding_mode is 9", "constant, edge, reflect or symmetric"});
  ExpectInvalid(Image(8, 8, 3),
                {Op("random_crop { height: 4 width: 4 padding { left: $0 } }",
                    0xFFFFFFFFu)},
                0, {"padding.left is 4294967295"});
}

TEST(PipelineTest, ReflectReachesBelowTheSizeSymmetricUpToIt) {
  const FieldSpec image = Image(4, 6, 1);
  const auto pad = [](const std::string& padding, PaddingMode mode) {
    return Op("pad { padding { $0 } padding_mode: $1 }", padding, mode);
  };
  const PaddingMode reflect = PaddingMode::kReflect;
  const PaddingMode symmetric = PaddingMode::kSymmetric;
  EXPECT_THAT(Compile(image, {pad(Sides(5, 3, 5, 3), reflect)}), IsOk());
  ExpectInvalid(image, {pad(Sides(0, 4, 0, 0), reflect)}, 0,
                {"reflect padding of 4", "height 4", "at most 3"});
  ExpectInvalid(image, {pad(Sides(0, 0, 6, 0), reflect)}, 0,
                {"reflect padding of 6", "width 6", "at most 5"});
  EXPECT_THAT(Compile(image, {pad(Sides(6, 4, 6, 4), symmetric)}), IsOk());
  ExpectInvalid(image, {pad(Sides(0, 0, 0, 5), symmetric)}, 0,
                {"symmetric padding of 5", "height 4", "at most 4"});
  ExpectInvalid(image, {pad(Sides(7, 0, 0, 0), symmetric)}, 0,
                {"symmetric padding of 7", "width 6", "at most 6"});
  EXPECT_THAT(Compile(image, {pad(Sides(100), PaddingMode::kEdge)}), IsOk());
  // The size is that at the op, not of the source.
  EXPECT_THAT(Compile(image, {Op("pad { padding { $0 } }", Sides(2)),
                              pad(Sides(0, 7, 0, 0), reflect)}),
              IsOk());
}

TEST(PipelineTest, RandomCropPadsTheWholeLackOnBothSides) {
  const FieldProgram program =
      MustCompile(Image(10, 40, 3), {Op("random_crop { height: 16 width: 32 "
                                        "padding { $0 } pad_if_needed: true }",
                                        Sides(1, 2, 3, 1))});
  // Height 10 + 3 lacks 3, so 3 more above and below.
  ASSERT_EQ(program.num_moves, 2);
  EXPECT_EQ(Geometry(program.moves[0]), "10x40>19x44@5,1");
  EXPECT_EQ(Geometry(program.moves[1]), "19x44>16x32@0,0");
}

TEST(PipelineTest, RandomCropPadsOnceSoReflectSeesTheSum) {
  v1::Transform crop =
      Op("random_crop { height: 9 width: 5 padding { top: 1 bottom: 1 } "
         "pad_if_needed: true padding_mode: PADDING_MODE_REFLECT }");
  // 5 + 2 lacks 2: 3 above and below, of at most 4.
  EXPECT_EQ(Geometry(MustCompile(Image(5, 5, 1), {crop}).moves[0]),
            "5x5>11x5@3,0");
  crop.mutable_random_crop()->set_height(11);  // lacks 4: 5
  ExpectInvalid(Image(5, 5, 1), {crop}, 0, {"reflect padding of 5"});
}

TEST(PipelineTest, RandomCropLargerThanTheImageNamesBothSizes) {
  ExpectInvalid(Image(32, 32, 3),
                {ToFloat(), Op("random_crop { height: 40 width: 30 }")}, 1,
                {"40x30", "the image of 32x32", "pad_if_needed"});
  ExpectInvalid(
      Image(32, 32, 3),
      {Op("random_crop { height: 32 width: 40 padding { $0 } }", Sides(2))}, 0,
      {"32x40", "the padded image of 36x36"});
}

TEST(PipelineTest, CropSizeOutOfRange) {
  for (auto [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 4}, {4, 0}, {4, 0xFFFFFFFF}}) {
    ExpectInvalid(Image(8, 8, 3),
                  {Op("random_crop { height: $0 width: $1 }", height, width)},
                  0, {absl::StrCat(height, "x", width)});
    ExpectInvalid(Image(8, 8, 3),
                  {Op("center_crop { height: $0 width: $1 }", height, width)},
                  0, {absl::StrCat(height, "x", width)});
  }
}

TEST(PipelineTest, CenterCropRoundsHalvesToEvenAsPythonDoes) {
  // int(round(d / 2.0)) for d = 0, 1, ...
  const std::vector<int> rounded = {0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6};
  for (int d = 1; d < static_cast<int>(rounded.size()); ++d) {
    const FieldProgram program = MustCompile(
        Image(20 + d, 30, 1), {Op("center_crop { height: 20 width: 30 }")});
    ASSERT_EQ(program.num_moves, 1);
    EXPECT_EQ(program.moves[0].kind, MoveKind::kCrop);
    EXPECT_EQ(program.moves[0].top, rounded[d]) << "difference " << d;
    EXPECT_EQ(program.moves[0].left, 0);
    EXPECT_EQ(MustCompile(Image(20, 30 + d, 1),
                          {Op("center_crop { height: 20 width: 30 }")})
                  .moves[0]
                  .left,
              rounded[d]);
  }
}

TEST(PipelineTest, CenterCropPadsASmallImageWithZeros) {
  // 5 lacking in height: 2 above, 3 below. Width 31 - 28: round(1.5) is 2.
  const FieldProgram program = MustCompile(
      Image(27, 31, 3), {Op("center_crop { height: 32 width: 28 }")});
  ASSERT_EQ(program.num_moves, 2);
  EXPECT_EQ(program.moves[0].kind, MoveKind::kPad);
  EXPECT_EQ(program.moves[0].padding_mode, PaddingMode::kConstant);
  EXPECT_EQ(Geometry(program.moves[0]), "27x31>32x31@2,0");
  EXPECT_EQ(program.moves[0].fill[0], 0.0f);
  EXPECT_EQ(Geometry(program.moves[1]), "32x31>32x28@0,2");
  // Smaller on both axes: the pad is all.
  const FieldProgram padded =
      MustCompile(Image(3, 4, 3), {Op("center_crop { height: 8 width: 5 }")});
  ASSERT_EQ(padded.num_moves, 1);
  EXPECT_EQ(Geometry(padded.moves[0]), "3x4>8x5@2,0");
}

TEST(PipelineTest, FillGoesThroughTheValueOpsAfterIt) {
  const v1::Transform normalize =
      Op("normalize { mean: [0.4914, 0.4822, 0.4465] "
         "std: [0.2470, 0.2435, 0.2616] }");
  const FieldProgram program =
      MustCompile(Image(8, 8, 3),
                  {Op("pad { padding { $0 } fill: [10, 128, 255] }", Sides(1)),
                   ToFloat(), Op("pad { padding { $0 } fill: 0.5 }", Sides(1)),
                   normalize, Op("pad { padding { $0 } fill: -1.5 }", Sides(1)),
                   Op("center_crop { height: 30 width: 30 }")});
  ASSERT_EQ(program.num_moves, 4);
  const float fill[3] = {10, 128, 255};
  for (int c = 0; c < 3; ++c) {
    // In float32, step by step.
    const float mean = static_cast<float>(normalize.normalize().mean(c));
    const float std = static_cast<float>(normalize.normalize().std(c));
    volatile float scaled = fill[c] / 255.0f;
    volatile float centred = scaled - mean;
    EXPECT_EQ(program.moves[0].fill[c], centred / std);
    volatile float half_centred = 0.5f - mean;
    EXPECT_EQ(program.moves[1].fill[c], half_centred / std);
    EXPECT_EQ(program.moves[2].fill[c], -1.5f);
    EXPECT_EQ(program.moves[3].fill[c], 0.0f);
  }
}

TEST(PipelineTest, ZeroPaddingBeforeNormalizeIsNotZeroAfterIt) {
  const FieldProgram program = MustCompile(
      Image(32, 32, 1),
      {Op("random_crop { height: 32 width: 32 padding { $0 } }", Sides(4)),
       ToFloat(), Op("normalize { mean: 0.5 std: 0.25 }")});
  EXPECT_EQ(program.moves[0].fill[0], -2.0f);
}

TEST(PipelineTest, FillOutOfRange) {
  const auto pad = [](std::vector<float> fill) {
    return Op("pad { padding { $0 } fill: [$1] }", Sides(1),
              absl::StrJoin(fill, ","));
  };
  const FieldSpec image = Image(8, 8, 3);
  EXPECT_THAT(Compile(image, {pad({0})}), IsOk());
  EXPECT_THAT(Compile(image, {pad({0, 255, 7})}), IsOk());
  ExpectInvalid(image, {pad({1, 2})}, 0, {"fill has 2 values", "3 channels"});
  ExpectInvalid(image, {pad({0.5})}, 0, {"fill is 0.5", "integer", "0..255"});
  ExpectInvalid(image, {pad({1, 2, 256})}, 0, {"fill is 256"});
  ExpectInvalid(image, {pad({-1})}, 0, {"fill is -1"});
  ExpectInvalid(image, {pad({NAN})}, 0, {"fill is nan in channel 0"});
  ExpectInvalid(image, {ToFloat(), pad({0, 0, INFINITY})}, 1,
                {"fill is inf in channel 2"});
  EXPECT_THAT(Compile(image, {ToFloat(), pad({-0.5})}), IsOk());
  ExpectInvalid(
      image,
      {Op("random_crop { height: 8 width: 8 padding { $0 } fill: 300 }",
          Sides(1))},
      0, {"fill is 300"});
}

TEST(PipelineTest, ToDtypeOfUint8) {
  for (Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
    FieldProgram program = MustCompile(Image(8, 8, 3), {ToFloat(dtype)});
    EXPECT_EQ(program.out_dtype, dtype);
    ASSERT_EQ(program.num_value_ops, 1);
    EXPECT_EQ(program.value_ops[0].divisor, 255.0f);
    program = MustCompile(Image(8, 8, 3),
                          {Op("to_dtype { dtype: $0 scale: false }", dtype)});
    EXPECT_EQ(program.out_dtype, dtype);
    EXPECT_EQ(program.num_value_ops, 0);
  }
}

TEST(PipelineTest, ToDtypeOfFloatDoesNotScale) {
  FieldProgram program =
      MustCompile(Image(8, 8, 3, Dtype::kFloat32), {ToFloat(Dtype::kFloat16)});
  EXPECT_EQ(program.in_dtype, Dtype::kFloat32);
  EXPECT_EQ(program.out_dtype, Dtype::kFloat16);
  EXPECT_EQ(program.num_value_ops, 0);
  program = MustCompile(Image(8, 8, 3), {ToFloat(), ToFloat(Dtype::kBfloat16)});
  EXPECT_EQ(program.out_dtype, Dtype::kBfloat16);
  EXPECT_EQ(program.num_value_ops, 1);
}

TEST(PipelineTest, ToDtypeRefused) {
  ExpectInvalid(Image(8, 8, 3),
                {ToFloat(), Op("to_dtype { dtype: DTYPE_UINT8 scale: true }")},
                1, {"from float32 back to uint8 is not supported"});
  ExpectInvalid(Image(8, 8, 3, Dtype::kFloat32),
                {Op("to_dtype { dtype: DTYPE_UINT8 }")}, 0,
                {"from float32 back to uint8"});
  for (Dtype dtype :
       {Dtype::kInt16, Dtype::kInt32, Dtype::kInt64, Dtype::kFloat64}) {
    ExpectInvalid(Image(8, 8, 3), {Op("to_dtype { dtype: $0 }", dtype)}, 0,
                  {absl::StrCat("cannot become ", DtypeName(dtype))});
  }
  ExpectInvalid(Image(8, 8, 3), {Op("to_dtype { dtype: $0 }", Dtype{})}, 0,
                {"dtype is not set"});
}

TEST(PipelineTest, NormalizeNeedsAFloatingPointImage) {
  ExpectInvalid(Image(8, 8, 3), {Op("normalize { mean: 0.5 std: 0.5 }")}, 0,
                {"Normalize needs a floating point image: put "
                 "ToDtype(float32, scale=True) before it"});
  EXPECT_THAT(Compile(Image(8, 8, 3, Dtype::kFloat32),
                      {Op("normalize { mean: 0.5 std: 0.5 }")}),
              IsOk());
  EXPECT_THAT(Compile(Image(8, 8, 3), {Op("to_dtype { dtype: DTYPE_FLOAT16 }"),
                                       Op("normalize { mean: 0.5 std: 0.5 }")}),
              IsOk());
}

TEST(PipelineTest, NormalizeParametersOutOfRange) {
  const FieldSpec image = Image(8, 8, 3, Dtype::kFloat32);
  const auto expect = [&](std::vector<double> mean, std::vector<double> std,
                          std::vector<std::string> parts) {
    ExpectInvalid(image,
                  {Op("normalize { mean: [$0] std: [$1] }",
                      absl::StrJoin(mean, ","), absl::StrJoin(std, ","))},
                  0, std::move(parts));
  };
  expect({}, {1}, {"mean has 0 values", "3 channels"});
  expect({0, 0}, {1}, {"mean has 2 values"});
  expect({0}, {1, 1, 1, 1}, {"std has 4 values"});
  expect({0}, {0}, {"std is 0 in channel 0"});
  expect({0}, {1, 1, 0}, {"std is 0 in channel 2"});
  expect({0}, {1e-60}, {"std is 0"});
  expect({0, kNan, 0}, {1}, {"mean is nan in channel 1"});
  expect({0}, {kInfinity}, {"std is inf"});
  expect({1e300}, {1}, {"mean is 1e+300", "finite float32"});
}

TEST(PipelineTest, ProbabilityOutOfRange) {
  for (double p : {-0.1, 1.1, kNan, kInfinity}) {
    ExpectInvalid(Image(8, 8, 3), {Op("random_horizontal_flip { p: $0 }", p)},
                  0, {absl::StrCat("p is ", p)});
    ExpectInvalid(Image(8, 8, 3), {Op("random_vertical_flip { p: $0 }", p)}, 0,
                  {absl::StrCat("p is ", p)});
  }
}

TEST(PipelineTest, PoliciesAreAStepForEachDrawnOp) {
  const FieldSpec image = Image(8, 8, 3);
  EXPECT_EQ(MustCompile(image, {Op("rand_augment {}")}).num_steps, 2);
  EXPECT_EQ(MustCompile(image, {Op("rand_augment { num_ops: $0 }", kMaxSteps)})
                .num_steps,
            kMaxSteps);
  EXPECT_EQ(MustCompile(image, {Op("trivial_augment_wide {}")}).num_steps, 1);
  EXPECT_EQ(MustCompile(image, {Op("auto_augment {}")}).num_steps, 2);
  // None is no op: a chain of nothing is a copy.
  EXPECT_EQ(MustCompile(image, {Op("rand_augment { num_ops: 0 }")}).num_steps,
            0);
  // Any of them may write the image between ops.
  for (const char* op :
       {"rand_augment {}", "trivial_augment_wide {}", "auto_augment {}"}) {
    EXPECT_EQ(MustCompile(image, {Op(op)}).scratch.image_elements[0],
              8 * 8 * 3);
  }
}

TEST(PipelineTest, PoliciesThatCannotBe) {
  const FieldSpec image = Image(8, 8, 3);
  ExpectInvalid(image, {Op("rand_augment { magnitude: 31 }")}, 0,
                {"magnitude is 31", "below num_magnitude_bins, 31"});
  ExpectInvalid(image, {Op("rand_augment { num_magnitude_bins: 1 }")}, 0,
                {"num_magnitude_bins is 1", "within 2..65536"});
  ExpectInvalid(image, {Op("rand_augment { num_ops: 33 }")}, 0,
                {"num_ops is 33", "within 0..32"});
  ExpectInvalid(image, {Op("auto_augment { policy: $0 }", 4)}, 0,
                {"policy is 4", "imagenet, cifar10 or svhn"});
  ExpectInvalid(image, {Op("trivial_augment_wide { fill: [1, 2] }")}, 0,
                {"fill has 2 values"});
  ExpectInvalid(Image(8, 8, 4), {Op("auto_augment {}")}, 0,
                {"4 channels", "1 or 3"});
}

TEST(PipelineTest, GaussianNoiseNeedsFloatingPoint) {
  ExpectInvalid(Image(8, 8, 3), {Op("gaussian_noise {}")}, 0,
                {"uint8", "ToDtype"});
  EXPECT_THAT(Compile(Image(8, 8, 3), {ToFloat(), Op("gaussian_noise {}")}),
              IsOk());
  ExpectInvalid(Image(8, 8, 3), {ToFloat(), Op("gaussian_noise { sigma: -1 }")},
                1, {"sigma is -1"});
}

TEST(PipelineTest, PerspectiveReachesHalfOfTheImageAtMost) {
  const FieldProgram program = MustCompile(
      Image(9, 16, 3), {Op("random_perspective { distortion_scale: 0.7 }")});
  const auto& params = ParamsAs<PerspectiveParams>(program.steps[0]);
  EXPECT_EQ(params.reach[0], 5);  // of 0.7 * 8
  EXPECT_EQ(params.reach[1], 2);  // of 0.7 * 4
  EXPECT_TRUE(params.is_bilinear);
  ExpectInvalid(Image(8, 8, 3),
                {Op("random_perspective { distortion_scale: 1.5 }")}, 0,
                {"distortion_scale is 1.5"});
}

TEST(PipelineTest, TooManyOps) {
  Transforms flips(kMaxMoves, Op("alternating_flip {}"));
  EXPECT_EQ(MustCompile(Image(8, 8, 3), flips).num_moves, kMaxMoves);
  // More are a chain.
  flips.resize(kMaxSteps, Op("alternating_flip {}"));
  EXPECT_EQ(MustCompile(Image(8, 8, 3), flips).num_steps, kMaxSteps);
  flips.push_back(Op("random_vertical_flip {}"));
  ExpectInvalid(Image(8, 8, 3), flips, kMaxSteps, {"too many", "32"});

  Transforms normalizes(kMaxValueOps, Op("normalize { mean: 0.5 std: 0.5 }"));
  const FieldSpec image = Image(8, 8, 3, Dtype::kFloat32);
  EXPECT_EQ(MustCompile(image, normalizes).num_value_ops, kMaxValueOps);
  normalizes.push_back(Op("normalize { mean: 0.5 std: 0.5 }"));
  EXPECT_EQ(MustCompile(image, normalizes).num_steps, kMaxValueOps + 1);

  const Transforms many(kMaxTransforms + 1, Op("pad {}"));
  EXPECT_THAT(Compile(image, many),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("field 'image': "),
                             HasSubstr("257 transforms"))));
  EXPECT_THAT(Compile(image, Transforms(kMaxTransforms, Op("pad {}"))), IsOk());
}

TEST(PipelineTest, OtherFieldsKeepTheirDtypeButScalarIntegers) {
  const auto out = [](Dtype dtype, std::vector<int64_t> shape) {
    return MustCompile(Other(dtype, std::move(shape)), {}).out_dtype;
  };
  for (Dtype dtype :
       {Dtype::kUint8, Dtype::kInt8, Dtype::kUint16, Dtype::kInt16,
        Dtype::kUint32, Dtype::kInt32, Dtype::kInt64}) {
    EXPECT_EQ(out(dtype, {}), Dtype::kInt64);
    EXPECT_EQ(out(dtype, {1}), dtype);
  }
  EXPECT_EQ(out(Dtype::kFloat64, {}), Dtype::kFloat64);
  EXPECT_EQ(out(Dtype::kFloat16, {3, 4}), Dtype::kFloat16);
  const FieldProgram program = MustCompile(Other(Dtype::kInt16, {3, 4, 5}), {});
  EXPECT_FALSE(program.is_image);
  EXPECT_EQ(program.in_height, 1);
  EXPECT_EQ(program.in_width, 60);
  EXPECT_EQ(program.out_height, 1);
  EXPECT_EQ(program.out_width, 60);
  EXPECT_EQ(program.channels, 1);
}

TEST(PipelineTest, OtherFieldsTakeOneToDtype) {
  const auto out = [](Dtype from, Dtype to) {
    return MustCompile(Other(from, {}), {Op("to_dtype { dtype: $0 }", to)})
        .out_dtype;
  };
  EXPECT_EQ(out(Dtype::kUint8, Dtype::kFloat16), Dtype::kFloat16);
  EXPECT_EQ(out(Dtype::kInt32, Dtype::kInt32), Dtype::kInt32);
  EXPECT_EQ(out(Dtype::kInt32, Dtype::kInt64), Dtype::kInt64);
  EXPECT_EQ(out(Dtype::kFloat64, Dtype::kFloat32), Dtype::kFloat32);

  const FieldSpec label = Other(Dtype::kUint8, {});
  ExpectInvalid(label, {Op("random_horizontal_flip {}")}, 0, {"not an image"});
  ExpectInvalid(label, {Op("normalize { mean: 0.5 std: 0.5 }")}, 0,
                {"the field is uint8", "put ToDtype"});
  ExpectInvalid(label, {Op("to_dtype { dtype: DTYPE_INT16 }")}, 0,
                {"a field of uint8 cannot become int16"});
  ExpectInvalid(label, {Op("to_dtype { dtype: DTYPE_FLOAT64 }")}, 0,
                {"float64"});
  ExpectInvalid(Other(Dtype::kFloat32, {}),
                {Op("to_dtype { dtype: DTYPE_INT64 }")}, 0,
                {"a field of float32 cannot become int64"});
  ExpectInvalid(label,
                {Op("to_dtype { dtype: DTYPE_FLOAT32 }"),
                 Op("to_dtype { dtype: DTYPE_FLOAT32 }")},
                1, {"one ToDtype"});
  ExpectInvalid(label, {Op("to_dtype { dtype: $0 }", Dtype{})}, 0,
                {"dtype is not set"});
}

TEST(PipelineTest, SequencesHaveTheShapeThatTheirOpsMake) {
  const auto shape = [](std::vector<int64_t> in, Transforms ops) {
    const FieldSpec field = Other(Dtype::kFloat32, std::move(in));
    const FieldProgram program = MustCompile(field, std::move(ops));
    return OutputShape(field, program);
  };
  const v1::Transform mel =
      Op("mel_spectrogram { hop_length: 160 n_mels: 64 }");
  EXPECT_EQ(shape({16000}, {mel}), (std::vector<int64_t>{64, 101}));
  EXPECT_EQ(shape({16000, 1}, {mel}), (std::vector<int64_t>{1, 64, 101}));
  EXPECT_EQ(shape({16000, 2}, {Op("vol { gain: 1 }"), mel}),
            (std::vector<int64_t>{2, 64, 101}));
  EXPECT_EQ(shape({64, 101}, {Op("time_masking { time_mask_param: 9 }")}),
            (std::vector<int64_t>{64, 101}));
  // Shorter than half a frame, without its reflection.
  EXPECT_EQ(shape({100}, {Op("mel_spectrogram { n_mels: 9 pad_mode: "
                             "FRAME_PAD_MODE_CONSTANT }")}),
            (std::vector<int64_t>{9, 1}));
}

TEST(PipelineTest, BadOpsOnSequencesAreNamed) {
  const auto refused = [](std::vector<int64_t> shape, Transforms ops,
                          std::vector<std::string> parts) {
    const int last = static_cast<int>(ops.size()) - 1;
    ExpectInvalid(Other(Dtype::kFloat32, std::move(shape)), std::move(ops),
                  last, std::move(parts));
  };
  const v1::Transform vol = Op("vol { gain: 2 }");
  const v1::Transform mel = Op("mel_spectrogram { n_mels: 20 }");
  const v1::Transform mask = Op("time_masking { time_mask_param: 3 }");
  ExpectInvalid(Other(Dtype::kInt16, {400}), {vol}, 0,
                {"the field is int16", "put ToDtype(\"float32\", scale=True)"});
  ExpectInvalid(Other(Dtype::kFloat64, {400}), {vol}, 0,
                {"the field is float64", "put ToDtype(\"float32\")"});
  refused({2, 3, 4}, {vol}, {"waveforms, [T] or [T, C]", "[2, 3, 4]"});
  refused({}, {mel}, {"waveforms"});
  refused({400}, {mel, vol},
          {"a spectrogram [20, 3]", "before MelSpectrogram"});
  refused({400}, {mel, mel}, {"a spectrogram [20, 3]"});
  refused({400}, {mask}, {"spectrograms", "[400]", "put MelSpectrogram"});
  refused({400, 2}, {vol, mask}, {"a waveform [400, 2]", "MelSpectrogram"});
  refused({400}, {Op("random_crop { height: 2 width: 2 }")},
          {"not an image", "Vol and MelSpectrogram"});
  refused({400}, {Op("mix_up { num_classes: 3 }")}, {"not an image"});
  refused({400}, {vol, Op("to_dtype { dtype: DTYPE_INT64 }")},
          {"cannot become int64"});
  refused({400, 3}, {Op("normalize { mean: 1 mean: 2 std: 1 std: 2 }")},
          {"mean has 2 values", "[400, 3] has 3 channels"});
  refused({400}, {Op("normalize { mean: 1 std: 1e-60 }")}, {"std is 0"});
  refused({400}, {Op("vol { gain: -1 }")}, {"gain is -1", "at least 0"});
  refused({400}, {Op("vol { gain_type: GAIN_TYPE_POWER }")}, {"above 0"});
  refused({400}, {Op("gain { min_gain_in_db: 7 }")},
          {"min_gain_in_db is 7", "exchange"});
  refused({400}, {Op("shift { min_shift: 0.6 }")}, {"min_shift is 0.6"});
  refused({400}, {Op("shift { max_shift: 2 }")},
          {"max_shift is 2", "within -1..1", "\"samples\""});
  refused({400},
          {Op("shift { min_shift: 0 max_shift: 401 shift_unit: "
              "SHIFT_UNIT_SAMPLES }")},
          {"max_shift is 401", "-400..400"});
  refused({400}, {Op("mel_spectrogram { win_length: 401 }")},
          {"win_length is 401", "n_fft, 400"});
  refused({400}, {Op("mel_spectrogram { win_length: 1 }")},
          {"hop_length is 0"});
  refused({400}, {Op("mel_spectrogram { f_min: 8000 }")},
          {"f_min is 8000", "below f_max, 8000"});
  refused({400}, {Op("mel_spectrogram { n_mels: 4000 f_max: 0.01 }")},
          {"n_mels is 4000", "fewer filters"});
  refused({200}, {Op("mel_spectrogram { n_mels: 9 }")},
          {"has 200 steps", "at least 201", "smaller n_fft"});
  refused({399}, {Op("mel_spectrogram { n_mels: 9 center: false }")},
          {"has 399 steps", "at least 400"});
  refused({1 << 29}, {Op("mel_spectrogram { n_mels: 20 hop_length: 1 }")},
          {"larger hop_length"});
  refused({1 << 20}, {Op("mel_spectrogram { n_fft: 65521 hop_length: 100 }")},
          {"transform_limits.max_operations"});
  refused({100, 3, 5},
          {Op("time_masking { time_mask_param: 1 iid_masks: true }")},
          {"up to 64 channels", "has 100"});
  refused({400},
          {Op("random_apply { transforms { mel_spectrogram { n_mels: 9 } } }")},
          {"transforms[0] MelSpectrogram", "out of the RandomApply"});
  refused({400}, {Op("add_noise { noise: 'street' }")}, {"for loaders"});
  // And ops on sequences on images.
  ExpectInvalid(Image(8, 8, 3), {ToFloat(), vol}, 1,
                {"the field is an image", "op on images"});
}

TEST(PipelineTest, BadNoiseIsNamed) {
  const auto compile = [](Dtype dtype, std::vector<int64_t> shape,
                          int64_t num_samples = 5, bool is_image = false) {
    return CompileField(Other(Dtype::kFloat32, {400, 2}), 0,
                        {{Op("add_noise { noise: 'street' }")}}, Layout::kNchw,
                        {}, {}, 0,
                        [&](const v1::AddNoise&, const std::string& field) {
                          EXPECT_EQ(field, "label");
                          return NoiseField{.spec = {.name = "sound",
                                                     .dtype = dtype,
                                                     .shape = shape,
                                                     .is_image = is_image},
                                            .num_samples = num_samples};
                        })
        .status();
  };
  for (const Dtype dtype :
       {Dtype::kInt8, Dtype::kInt16, Dtype::kInt32, Dtype::kInt64,
        Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    EXPECT_THAT(compile(dtype, {9, 2}), IsOk());
  }
  const auto refuses = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("transforms[0] AddNoise: field 'sound' of the "
                              "noise 'street' " +
                              words));
  };
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kUint16, Dtype::kUint32}) {
    EXPECT_THAT(compile(dtype, {9}), refuses("is uint"));
  }
  EXPECT_THAT(compile(Dtype::kInt16, {9, 1}), IsOk());
  EXPECT_THAT(compile(Dtype::kInt16, {kAnyExtent, 2}), IsOk());
  EXPECT_THAT(compile(Dtype::kInt16, {9, 3}), refuses("has 3 channels"));
  EXPECT_THAT(compile(Dtype::kInt16, {}), refuses("has samples of the shape"));
  EXPECT_THAT(compile(Dtype::kInt16, {9, 2, 2}), refuses("has samples of"));
  EXPECT_THAT(compile(Dtype::kFloat32, {9, 2, 1}, 5, true),
              refuses("has images"));
  EXPECT_THAT(compile(Dtype::kInt16, {9}, int64_t{1} << 32),
              refuses("has 4294967296 samples"));
  EXPECT_THAT(compile(Dtype::kInt16, {9}, (int64_t{1} << 32) - 1), IsOk());
}

TEST(PipelineTest, OtherFieldsOutOfRange) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {0}, {-2}, {1 << 16, 1 << 15}, {int64_t{1} << 62, 4}}) {
    EXPECT_THAT(Compile(Other(Dtype::kUint8, shape), {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith("field 'label': ")));
  }
  EXPECT_THAT(Compile(Other(Dtype{}, {}), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("dtype is not set")));
}

TEST(PipelineTest, RotateExpandsToWhatItsAngleNeeds) {
  const auto size = [](int64_t height, int64_t width, double angle, bool expand,
                       const std::string& center = "") {
    const FieldProgram program = MustCompile(
        Image(height, width, 3),
        {Op("rotate { angle: $0 expand: $1 $2 }", angle, expand, center)});
    return absl::StrCat(program.out_height, "x", program.out_width);
  };
  EXPECT_EQ(size(4, 7, 45.0, false), "4x7");
  for (const double angle : {0.0, 180.0, -360.0}) {
    EXPECT_EQ(size(4, 7, angle, true), "4x7") << angle;
  }
  for (const double angle : {90.0, -90.0, 270.0, 450.0}) {
    EXPECT_EQ(size(4, 7, angle, true), "7x4") << angle;
  }
  // Corners 7.07 from the middle, which is at 5: from -2.07 to 12.07.
  EXPECT_EQ(size(10, 10, 45.0, true), "16x16");
  // About another center they are elsewhere: from -3.54 to 10.61, and from 1.46
  // to 15.61.
  EXPECT_EQ(size(10, 10, 45.0, true, "center { x: 0 y: 5 }"), "15x15");
  ExpectInvalid(Image(30000, 30000, 1),
                {Op("rotate { angle: 45.0 expand: true }")}, 0, {"elements"});
  ExpectInvalid(Image(32, 32, 3), {Op("random_rotation { expand: true }")}, 0,
                {"expand", "a size of its own, by its angle", "CenterCrop",
                 "Pad", "Rotate"});
  const v1::Transform group =
      Op("random_apply { transforms { rotate { angle: 45 expand: true } } }");
  ExpectInvalid(Image(10, 10, 3), {group}, 0, {"16x16", "must be the same"});
}

// Sizes that once made numbers of taps and bytes overflow.
TEST(PipelineTest, ASideIsNotLongerThanTheLimit) {
  for (const int64_t size : {(int64_t{1} << 24) - 31, (int64_t{1} << 29) - 32,
                             int64_t{1} << 29, (int64_t{1} << 30) - 33}) {
    ExpectInvalid(Image(32, 1, 1),
                  {Op("pad { padding { bottom: $0 } }", size),
                   Op("resize { size { height: 1 width: 1 } }")},
                  0, {absl::StrCat(size + 32), "max_side", "16777216"});
    ExpectInvalid(Image(1, 32, 1),
                  {Op("resize { size { height: 1 width: 1 } }"),
                   Op("resize { size { height: 1 width: $0 } }", size + 32)},
                  1, {absl::StrCat(size + 32), "max_side", "16777216"});
  }
  const TransformLimits limits = {.max_side = 100};
  EXPECT_THAT(
      CompileField(Image(100, 100, 3), 0, {}, Layout::kNchw, {}, limits),
      IsOk());
  EXPECT_THAT(CompileField(Image(101, 1, 3), 0, {}, Layout::kNchw, {}, limits),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("field 'image': "), HasSubstr("101x1"),
                             HasSubstr("max_side is 100"))));
  EXPECT_THAT(
      CompileField(Image(100, 100, 3), 0,
                   {ToFloat(Dtype::kFloat32),
                    Op("resize { size { height: 8 width: 101 } }")},
                   Layout::kNchw, {}, limits),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("field 'image', transforms[1] Resize: "),
                     HasSubstr("8x101"), HasSubstr("max_side"))));
}

TEST(PipelineTest, MemoryBetweenOpsHasALimit) {
  // Half of 2^28 float32, written once or twice.
  const FieldSpec image = Image(1 << 14, 1 << 13, 1);
  EXPECT_THAT(Compile(image, {Op("invert {}"),
                              Op("resize { size { height: 32 width: 32 } }")}),
              IsOk());
  ExpectInvalid(
      image,
      {Op("invert {}"), Op("random_equalize { p: 1.0 }"),
       Op("resize { size { height: 32 width: 32 } }")},
      2, {"1107953664 bytes of memory between ops", "max_scratch_mib is 1024"});
  EXPECT_THAT(Compile(image, {Op("resize { size { height: 32 width: 32 } }")}),
              IsOk());
  const TransformLimits small = {.max_scratch_bytes = 8 << 20};
  const auto compile = [&](int64_t size) {
    return CompileField(Image(size, size, 3), 0, {Op("rotate { angle: 30.0 }")},
                        Layout::kNchw, {}, small)
        .status();
  };
  EXPECT_THAT(compile(800), IsOk());
  EXPECT_THAT(compile(900), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("max_scratch_mib is 8")));
}

// Moves of samples that differ in size are a chain, with a map of its own.
TEST(PipelineTest, MemoryOfRaggedMovesHasALimit) {
  const TransformLimits small = {.max_scratch_bytes = 8 << 20};
  const std::vector<ImageSize> sizes = {{8, 8}, {9, 7}};
  const auto compile = [&](int64_t padding) {
    return CompileField(Image(-1, -1, 3), 0,
                        {Op("pad { padding { right: $0 } }", padding),
                         Op("crop { height: 4 width: 4 }")},
                        Layout::kNchw, sizes, small)
        .status();
  };
  EXPECT_THAT(compile(1 << 10), IsOk());
  EXPECT_THAT(compile(1 << 23),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("transforms[0] Pad"),
                             HasSubstr("max_scratch_mib is 8"))));
}

TEST(PipelineTest, WarpsAreForSidesThatFloat32HasHalvesOf) {
  for (const char* op : {"affine {}", "rotate { angle: 0.0 }",
                         "random_perspective {}", "rand_augment {}"}) {
    EXPECT_THAT(Compile(Image(1, 1 << 22, 1), {Op(op)}), IsOk()) << op;
    ExpectInvalid(Image(1, (1 << 22) + 1, 1), {Op(op)}, 0,
                  {"a side of 4194305 pixels", "up to 4194304"});
  }
}

TEST(PipelineTest, OperationsHaveALimit) {
  const FieldSpec image = Image(64, 64, 3);
  Transforms ops;
  // Each makes 16 MiB elements of 12 Ki.
  for (int i = 0; i < 8; ++i) {
    ops.push_back(
        Op("resize { size { height: 2000 width: 2000 } interpolation: "
           "INTERPOLATION_MODE_BICUBIC }"));
    ops.push_back(Op("gaussian_blur { kernel_size { height: 43 width: 43 } }"));
    ops.push_back(Op("resize { size { height: 64 width: 64 } }"));
  }
  constexpr TransformLimits kLimits = {.max_operations = int64_t{1} << 32};
  const absl::Status refusal =
      CompileField(image, 0, ops, Layout::kNchw, {}, kLimits).status();
  EXPECT_THAT(refusal,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("GaussianBlur: with it a sample takes"),
                             HasSubstr("max_operations is 4294967296"))));
  const FieldProgram usual =
      *Compile(Image(400, 500, 3),
               {Op("random_resized_crop { size { height: 224 width: 224 } }"),
                Op("random_horizontal_flip {}"), ToFloat(Dtype::kFloat32),
                Op("normalize { mean: 0.5 std: 0.5 }")});
  EXPECT_GT(usual.operations, 224 * 224 * 3);
  EXPECT_LT(usual.operations, 20'000'000);
  AugmentProgram program = {};
  program.num_fields = 2;
  program.fields[0] = usual;
  program.fields[1] =
      *CompileField(Other(Dtype::kInt64, {7}), 1, {}, Layout::kNchw);
  EXPECT_EQ(EstimatedOperations(program), usual.operations + 7);
}

TEST(PipelineTest, DeterministicOps) {
  EXPECT_TRUE(IsDeterministic({}));
  EXPECT_TRUE(IsDeterministic({Op("pad {}"), Op("center_crop {}"),
                               Op("to_dtype { dtype: DTYPE_FLOAT32 }"),
                               Op("normalize {}")}));
  EXPECT_FALSE(IsDeterministic({Op("pad {}"), Op("random_crop {}")}));
  EXPECT_FALSE(IsDeterministic({Op("random_horizontal_flip {}")}));
  EXPECT_FALSE(IsDeterministic({Op("random_vertical_flip { p: 1 }")}));
  EXPECT_FALSE(IsDeterministic({Op("alternating_flip {}")}));
}

}  // namespace
}  // namespace datasetd
