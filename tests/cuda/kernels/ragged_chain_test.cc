// Chains on samples of their own size: each against the same pipeline compiled
// for that size alone, bit for bit, and against the naive references.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/math/rounding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/ragged_index.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/chain_runner.h"
#include "tests/reference/geometry_reference.h"
#include "tests/testing/long_form.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

using reference::PlanarImage;
using ::testing::AllOf;
using testing::ChainResult;
using testing::ChainRunner;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

using Ops = Transforms;

const std::vector<ImageSize> kSizes = {{20, 31}, {64, 48}, {33, 33}, {48, 64},
                                       {21, 90}, {90, 17}, {40, 40}};

// Random samples of kSizes, packed.
struct Samples {
  explicit Samples(Dtype dtype, int channels = 3)
      : field({.name = "image",
               .dtype = dtype,
               .shape = {kAnyExtent, kAnyExtent, channels},
               .is_image = true}),
        index(PixelBytes(field)) {
    std::mt19937 engine(7);
    for (const ImageSize& size : kSizes) {
      index.Add(size);
      std::vector<uint8_t>& image = images.emplace_back();
      const int64_t elements = size.height * size.width * channels;
      PlanarImage& planar =
          planars.emplace_back(channels, static_cast<int>(size.height),
                               static_cast<int>(size.width));
      for (int64_t i = 0; i < elements; ++i) {
        const uint32_t level = engine() % 256;
        const int64_t pixel = i / channels;
        double& exact = planar.at(static_cast<int>(i % channels),
                                  static_cast<int>(pixel / size.width),
                                  static_cast<int>(pixel % size.width));
        exact = level;
        if (dtype == Dtype::kUint8) {
          image.push_back(static_cast<uint8_t>(level));
          continue;
        }
        const uint16_t half = FloatToFloat16(static_cast<float>(level));
        image.insert(image.end(), reinterpret_cast<const uint8_t*>(&half),
                     reinterpret_cast<const uint8_t*>(&half) + 2);
      }
      // Bytes between samples show if they are read.
      packed.insert(packed.end(), image.begin(), image.end());
      packed.resize(static_cast<size_t>(index.size_bytes()), 0xAB);
    }
  }

  FieldSpec FieldOf(size_t sample) const {
    FieldSpec one = field;
    one.shape[0] = kSizes[sample].height;
    one.shape[1] = kSizes[sample].width;
    return one;
  }

  FieldSpec field;
  RaggedIndex index;
  std::vector<std::vector<uint8_t>> images;
  std::vector<PlanarImage> planars;
  std::vector<uint8_t> packed;
};

FieldProgram Compile(const FieldSpec& field, const Ops& ops, Layout layout,
                     absl::Span<const ImageSize> sizes = {}) {
  auto program = CompileField(field, 0, ops, layout, sizes);
  EXPECT_THAT(program.status(), IsOk());
  return program.ok() ? *program : FieldProgram{};
}

// Every way to run the ragged program has the bits of the dense ones.
void ExpectAsDense(const Ops& ops, Dtype dtype = Dtype::kUint8,
                   Layout layout = Layout::kNhwc, int channels = 3) {
  const Samples samples(dtype, channels);
  const FieldProgram ragged = Compile(samples.field, ops, layout, kSizes);
  ASSERT_GT(ragged.num_steps, 0);
  const ChainRunner runner(ragged, samples.packed, samples.index.samples());
  const uint64_t num_epochs = testing::IsFull() ? 3 : 2;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(kSizes[i].height, "x", kSizes[i].width));
    const FieldProgram dense = Compile(samples.FieldOf(i), ops, layout);
    ASSERT_EQ(ragged.out_height, dense.out_height);
    ASSERT_EQ(ragged.out_width, dense.out_width);
    ASSERT_EQ(ragged.out_channels, dense.out_channels);
    ASSERT_EQ(ragged.out_dtype, dense.out_dtype);
    const ChainRunner alone(dense, samples.images[i]);
    for (uint64_t epoch = 0; epoch < num_epochs; ++epoch) {
      const auto sample = static_cast<int64_t>(i);
      EXPECT_EQ(runner.All(epoch, sample).bytes,
                alone.Host(epoch, sample).bytes)
          << "epoch " << epoch;
    }
  }
}

TEST(RaggedChainTest, ResizeGivesEachSampleTheSize) {
  for (const auto interpolation :
       {InterpolationMode::kNearest, InterpolationMode::kBilinear,
        InterpolationMode::kBicubic}) {
    for (const bool antialias : {false, true}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(interpolation), antialias));
      ExpectAsDense(
          {Op("resize { size { height: 40 width: 40 } interpolation: $0 "
              "antialias: $1 }",
              interpolation, antialias)});
    }
  }
}

TEST(RaggedChainTest, RandomResizedCropDrawsWithTheSamplesSize) {
  ExpectAsDense({Op("random_resized_crop { size { height: 24 width: 28 } }")});
  ExpectAsDense({Op("random_resized_crop { size { height: 24 width: 28 } }")},
                Dtype::kFloat16, Layout::kNchw);
  // Windows that never fit: the fixed one, by the sample's ratio.
  ExpectAsDense(
      {Op("random_resized_crop { size { height: 9 width: 9 } scale { min: 4.0 "
          "max: 5.0 } }")});
}

TEST(RaggedChainTest, CenterCropPadsWhatIsTooSmall) {
  ExpectAsDense({Op("center_crop { height: 40 width: 41 }")});
  ExpectAsDense({Op("center_crop { height: 101 width: 95 }")}, Dtype::kUint8,
                Layout::kNchw, 1);
  ExpectAsDense({Op("center_crop { height: 7 width: 8 }")});
}

TEST(RaggedChainTest, RandomCropPadsIfNeeded) {
  for (const auto mode : {PaddingMode::kConstant, PaddingMode::kEdge}) {
    ExpectAsDense(
        {Op("random_crop { height: 40 width: 44 pad_if_needed: true fill: "
            "[3.0, 100.0, 255.0] padding_mode: $0 }",
            mode)});
  }
  ExpectAsDense({Op("random_crop { height: 19 width: 16 }")});
  ExpectAsDense(
      {Op("random_crop { height: 22 width: 20 padding { left: 2 top: 1 right: "
          "3 bottom: 4 } padding_mode: PADDING_MODE_REFLECT }")});
  ExpectAsDense(
      {Op("random_crop { height: 30 width: 30 padding { left: 1 top: 2 right: "
          "3 bottom: 0 } pad_if_needed: true padding_mode: "
          "PADDING_MODE_SYMMETRIC }")});
}

TEST(RaggedChainTest, CropAndResizedCropMayReachBeyondTheSample) {
  ExpectAsDense({Op("crop { top: -3 left: 5 height: 50 width: 50 }")});
  ExpectAsDense({Op("crop { top: 2 left: 3 height: 15 width: 11 }")});
  ExpectAsDense(
      {Op("resized_crop { top: -1 left: 4 height: 30 width: 35 size { height: "
          "16 width: 20 } }")});
}

TEST(RaggedChainTest, ShorterEdgeThenCenterCropIsTheUsualEvaluation) {
  const Ops number = {
      Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"),
      Op("normalize { mean: [0.4, 0.5, 0.6] std: [0.2, 0.3, 0.4] }")};
  for (const int64_t edge : {12, 33, 70}) {
    for (const int64_t max_size : {int64_t{0}, edge * 3 / 2}) {
      SCOPED_TRACE(absl::StrCat(edge, " ", max_size));
      Ops ops = {Op("resize { shorter_edge: $0 max_size: $1 }", edge, max_size),
                 Op("center_crop { height: $0 width: $1 }", edge, edge)};
      ops.insert(ops.end(), number.begin(), number.end());
      ExpectAsDense(ops, Dtype::kUint8, Layout::kNchw);
    }
  }
}

TEST(RaggedChainTest, OpsThatKeepSizesMayComeFirst) {
  ExpectAsDense({Op("random_horizontal_flip {}"), Op("vertical_flip {}"),
                 Op("alternating_flip {}"),
                 Op("pad { padding { left: 1 top: 2 right: 3 } fill: 9.0 }"),
                 Op("random_vertical_flip { p: 0.4 }"),
                 Op("center_crop { height: 30 width: 30 }")});
  ExpectAsDense({Op("color_jitter { brightness { min: 0.5 max: 1.5 } contrast "
                    "{ min: 0.5 max: 1.5 } saturation { min: 0.5 max: 1.5 } "
                    "hue { min: -0.1 max: 0.1 } }"),
                 Op("equalize {}"),
                 Op("adjust_sharpness { sharpness_factor: 1.7 }"),
                 Op("random_apply { transforms { invert {} } p: 0.5 }"),
                 Op("random_resized_crop { size { height: 18 width: 18 } }")});
  ExpectAsDense({Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"),
                 Op("gaussian_noise {}"),
                 Op("random_resized_crop { size { height: 18 width: 18 } }")});
}

TEST(RaggedChainTest, OpsThatFollowAreAsEver) {
  ExpectAsDense({Op("random_resized_crop { size { height: 24 width: 24 } }"),
                 Op("random_horizontal_flip {}"),
                 Op("random_rotation { degrees { min: -30 max: 30 } }"),
                 Op("random_perspective {}"), Op("rand_augment {}"),
                 Op("random_crop { height: 20 width: 20 }"),
                 Op("gaussian_blur { kernel_size { height: 3 width: 5 } }"),
                 Op("color_jitter { contrast { min: 0.5 max: 1.5 } }"),
                 Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"),
                 Op("random_erasing { p: 1.0 }")});
}

// Against formulas that share nothing with the kernels.
TEST(RaggedChainTest, PixelsAreTheReferences) {
  const Samples samples(Dtype::kUint8);
  const Ops ops = {Op("random_resized_crop { size { height: 23 width: 19 } }"),
                   Op("to_dtype { dtype: DTYPE_FLOAT32 scale: false }")};
  const FieldProgram field = Compile(samples.field, ops, Layout::kNchw, kSizes);
  const ChainRunner runner(field, samples.packed, samples.index.samples());
  auto sized = std::make_unique<AugmentProgram>(runner.program());
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const auto sample = static_cast<int64_t>(i);
    GiveSize(field, kSizes[i], &sized->fields[0]);
    const auto drawn = ExplainSample(*sized, 1, sample);
    ASSERT_THAT(drawn, IsOk());
    ASSERT_EQ((*drawn)[0].name, "Resize");
    const auto& window = (*drawn)[0].parameters;
    const auto at = [&](size_t k) {
      return static_cast<int>(window[k].second[0]);
    };
    EXPECT_LE(at(0) + at(2), kSizes[i].height);
    EXPECT_LE(at(1) + at(3), kSizes[i].width);
    const PlanarImage expected = reference::Resize(
        reference::Crop(samples.planars[i], at(0), at(1), at(2), at(3)), 23, 19,
        reference::Filter::kBilinear, true);
    const std::vector<float> actual = runner.All(1, sample).Floats(field);
    ASSERT_EQ(actual.size(), expected.values.size());
    for (size_t k = 0; k < actual.size(); ++k) {
      ASSERT_NEAR(actual[k], expected.values[k], 1.0 + 255e-5) << k;
    }
  }
}

TEST(RaggedChainTest, CenterCropIsTheReferences) {
  const Samples samples(Dtype::kUint8);
  const FieldProgram field =
      Compile(samples.field,
              {Op("center_crop { height: 40 width: 40 }"),
               Op("to_dtype { dtype: DTYPE_FLOAT32 scale: false }")},
              Layout::kNchw, kSizes);
  const ChainRunner runner(field, samples.packed, samples.index.samples());
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const int height = static_cast<int>(kSizes[i].height);
    const int width = static_cast<int>(kSizes[i].width);
    const int lack_y = std::max(40 - height, 0);
    const int lack_x = std::max(40 - width, 0);
    const PlanarImage padded = reference::PadConstant(
        samples.planars[i], lack_x / 2, lack_y / 2, (lack_x + 1) / 2,
        (lack_y + 1) / 2, {0.0, 0.0, 0.0});
    const PlanarImage expected = reference::Crop(
        padded, static_cast<int>(std::nearbyint((padded.height - 40) / 2.0)),
        static_cast<int>(std::nearbyint((padded.width - 40) / 2.0)), 40, 40);
    const std::vector<float> actual =
        runner.All(0, static_cast<int64_t>(i)).Floats(field);
    for (size_t k = 0; k < actual.size(); ++k) {
      ASSERT_EQ(actual[k], expected.values[k]) << i << " " << k;
    }
  }
}

absl::Status StatusOf(const Ops& ops, std::vector<ImageSize> sizes = kSizes) {
  const FieldSpec field = {
      .name = "image", .shape = {kAnyExtent, kAnyExtent, 3}, .is_image = true};
  return CompileField(field, 0, ops, Layout::kNhwc, sizes).status();
}

TEST(RaggedChainTest, ABatchNeedsOneSize) {
  for (const Ops& ops : {Ops{}, Ops{Op("random_horizontal_flip {}")},
                         Ops{Op("resize { shorter_edge: 32 }")},
                         Ops{Op("to_dtype { dtype: DTYPE_FLOAT32 }")}}) {
    EXPECT_THAT(StatusOf(ops),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("field 'image'"),
                               HasSubstr("must begin with an op that gives it"),
                               HasSubstr("RandomResizedCrop"))));
  }
  EXPECT_THAT(StatusOf({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("from 20x17 to 90x90")));
}

TEST(RaggedChainTest, OpsThatNeedOneSizeAreRefusedBeforeIt) {
  for (const Ops& ops :
       {Ops{Op("random_rotation { degrees { min: -5 max: 5 } }")},
        Ops{Op("gaussian_blur { kernel_size { height: 3 width: 3 } }")},
        Ops{Op("random_erasing {}")}, Ops{Op("cutout { size: 4 }")}}) {
    Ops all = ops;
    all.push_back(Op("center_crop { height: 8 width: 8 }"));
    EXPECT_THAT(StatusOf(all),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("transforms[0] ",
                                                      TransformName(ops[0]))),
                               HasSubstr("it needs images of one size"),
                               HasSubstr("CenterCrop"))));
  }
}

TEST(RaggedChainTest, CropsAndPadsAreCheckedAgainstEverySize) {
  EXPECT_THAT(StatusOf({Op("random_crop { height: 21 width: 5 }")}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("larger than a sample's image of 20x31"),
                             HasSubstr("pad_if_needed"))));
  EXPECT_THAT(
      StatusOf({Op("pad { padding { left: 17 } padding_mode: "
                   "PADDING_MODE_REFLECT }"),
                Op("center_crop { height: 8 width: 8 }")}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("reflect padding of 17 on an image of width 17")));
  // One of 20 rows would be mirrored by more than it has.
  EXPECT_THAT(StatusOf({Op("random_crop { height: 80 width: 80 pad_if_needed: "
                           "true padding_mode: PADDING_MODE_REFLECT }")}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reflect padding of 60")));
  EXPECT_THAT(
      StatusOf({Op("crop { left: $0 height: 8 width: 8 }", (1 << 30) - 1)}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("must be within")));
  EXPECT_THAT(
      StatusOf({Op("resize { shorter_edge: 100000 }"),
                Op("center_crop { height: 8 width: 8 }")}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("would become")));
  EXPECT_THAT(StatusOf({Op("resize { shorter_edge: 4 max_size: 5 }"),
                        Op("center_crop { height: 8 width: 8 }")},
                       {{1, 100}, {3, 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a sample of 1x100 would become 0x5")));
}

TEST(RaggedChainTest, AGroupKeepsSizes) {
  EXPECT_THAT(StatusOf({Op("random_apply { transforms { center_crop { height: "
                           "8 width: 8 } } }")}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("change the sizes of the samples")));
  EXPECT_THAT(
      StatusOf(
          {Op("random_apply { transforms { pad { padding { left: 1 } } } }"),
           Op("center_crop { height: 8 width: 8 }")}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("change the sizes of the samples")));
}

}  // namespace
}  // namespace datasetd
