// Compiled pipelines against the naive references, and all ways to run them
// against each other, bit for bit.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "cuda/kernels/math/rounding.h"
#include "gtest/gtest.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/chain_runner.h"
#include "tests/reference/colour_reference.h"
#include "tests/reference/geometry_reference.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using reference::AffineMap;
using reference::Filter;
using reference::PlanarImage;
using testing::ChainRunner;
using testing::IsOk;

struct Shape {
  int height, width;
};
constexpr Shape kShapes[] = {{1, 1},    {2, 3},     {31, 33}, {32, 32},
                             {123, 66}, {224, 224}, {5, 300}};

// An image of random pixels, as bytes and as the reference has it.
struct TestImage {
  TestImage(Shape shape, int channels, Dtype dtype)
      : planar(channels, shape.height, shape.width), dtype(dtype) {
    std::mt19937 engine(static_cast<uint32_t>(shape.height * 1000 +
                                              shape.width * 10 + channels));
    const size_t size = DtypeSizeBytes(dtype);
    bytes.resize(planar.values.size() * size);
    for (int y = 0; y < shape.height; ++y) {
      for (int x = 0; x < shape.width; ++x) {
        for (int c = 0; c < channels; ++c) {
          const size_t at =
              ((size_t{1} * y * shape.width + x) * channels + c) * size;
          planar.at(c, y, x) = Put(engine() % 256, &bytes[at]);
        }
      }
    }
  }

  FieldSpec field() const {
    return {.name = "image",
            .dtype = dtype,
            .shape = {planar.height, planar.width, planar.channels},
            .is_image = true};
  }
  double bound() const { return dtype == Dtype::kUint8 ? 255.0 : 1.0; }

  PlanarImage planar;
  Dtype dtype;
  std::vector<uint8_t> bytes;

 private:
  double Put(uint32_t level, uint8_t* to) const {
    const float value = static_cast<float>(level) / 255.0f;
    uint16_t half;
    switch (dtype) {
      case Dtype::kUint8:
        *to = static_cast<uint8_t>(level);
        return level;
      case Dtype::kFloat16:
        half = FloatToFloat16(value);
        std::memcpy(to, &half, 2);
        return Float16ToFloat(half);
      case Dtype::kBfloat16:
        half = FloatToBfloat16(value);
        std::memcpy(to, &half, 2);
        return FloatFromBits(uint32_t{half} << 16);
      default:
        std::memcpy(to, &value, 4);
        return value;
    }
  }
};

FieldProgram Compile(const FieldSpec& field, std::vector<TransformSpec> ops,
                     Layout layout = Layout::kNchw) {
  auto program = CompileField(field, 0, ops, layout);
  EXPECT_THAT(program.status(), IsOk());
  return program.ok() ? *program : FieldProgram{};
}

// Without rounding to uint8 at the end.
FieldProgram CompileToFloat(const TestImage& image,
                            std::vector<TransformSpec> ops) {
  if (image.dtype != Dtype::kFloat32) {
    ops.push_back(ToDtypeSpec{.dtype = Dtype::kFloat32, .scale = false});
  }
  return Compile(image.field(), std::move(ops));
}

// Runs and compares; `tolerance` is a part of the image's bound.
void ExpectNear(const TestImage& image, const std::vector<TransformSpec>& ops,
                const PlanarImage& expected, double tolerance) {
  const FieldProgram field = CompileToFloat(image, ops);
  ASSERT_EQ(field.out_height, expected.height);
  ASSERT_EQ(field.out_width, expected.width);
  const std::vector<float> actual =
      ChainRunner(field, image.bytes).All().Floats(field);
  ASSERT_EQ(actual.size(), expected.values.size());
  double worst = 0.0;
  size_t worst_at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(actual[i]) - expected.values[i]);
    // So that NaN counts.
    if (!(difference <= worst)) {
      worst = difference;
      worst_at = i;
    }
  }
  EXPECT_LE(worst, tolerance * image.bound())
      << "at " << worst_at << ": " << actual[worst_at] << ", must be "
      << expected.values[worst_at];
}

template <typename Check>
void ForImages(const Check& check) {
  for (const Shape& shape : kShapes) {
    for (const int channels : {1, 3}) {
      for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat32}) {
        SCOPED_TRACE(absl::StrCat(shape.height, "x", shape.width, "x", channels,
                                  " ", DtypeName(dtype)));
        check(TestImage(shape, channels, dtype));
      }
    }
  }
}

ResizeSpec ResizeTo(int height, int width, InterpolationMode interpolation,
                    bool antialias) {
  return {.height = height,
          .width = width,
          .interpolation = interpolation,
          .antialias = antialias};
}

PlanarImage Clamped(PlanarImage image, double bound) {
  for (double& value : image.values) value = std::clamp(value, 0.0, bound);
  return image;
}

TEST(ChainTest, ResizeIsTheReference) {
  ForImages([](const TestImage& image) {
    for (const Shape& to : {Shape{1, 1}, Shape{7, 50}, Shape{64, 40}}) {
      for (const bool antialias : {true, false}) {
        SCOPED_TRACE(absl::StrCat("to ", to.height, "x", to.width,
                                  antialias ? " antialias" : ""));
        ExpectNear(image,
                   {ResizeTo(to.height, to.width, InterpolationMode::kBilinear,
                             antialias)},
                   reference::Resize(image.planar, to.height, to.width,
                                     Filter::kBilinear, antialias),
                   1e-5);
        PlanarImage cubic = reference::Resize(image.planar, to.height, to.width,
                                              Filter::kBicubic, antialias);
        if (image.dtype == Dtype::kUint8) cubic = Clamped(cubic, 255.0);
        ExpectNear(image,
                   {ResizeTo(to.height, to.width, InterpolationMode::kBicubic,
                             antialias)},
                   cubic, 1e-5);
      }
    }
  });
}

TEST(ChainTest, NearestResizeTakesAPixel) {
  ForImages([](const TestImage& image) {
    for (const Shape& to : {Shape{1, 1}, Shape{7, 50}, Shape{64, 64}}) {
      for (const bool is_exact : {false, true}) {
        const FieldProgram field = CompileToFloat(
            image, {ResizeTo(to.height, to.width,
                             is_exact ? InterpolationMode::kNearestExact
                                      : InterpolationMode::kNearest,
                             true)});
        if (field.num_steps == 0) continue;  // of that size already
        const std::vector<float> actual =
            ChainRunner(field, image.bytes).All().Floats(field);
        size_t i = 0;
        for (int c = 0; c < image.planar.channels; ++c) {
          for (int y = 0; y < to.height; ++y) {
            for (int x = 0; x < to.width; ++x, ++i) {
              // Next to an edge float32 may fall to either side.
              bool is_one = false;
              for (const double slack : {-1e-4, 1e-4}) {
                const int from_y = reference::NearestSource(
                    y, image.planar.height, to.height, is_exact, slack);
                for (const double slack_x : {-1e-4, 1e-4}) {
                  const int from_x = reference::NearestSource(
                      x, image.planar.width, to.width, is_exact, slack_x);
                  is_one = is_one || static_cast<double>(actual[i]) ==
                                         image.planar.at(c, from_y, from_x);
                }
              }
              ASSERT_TRUE(is_one) << c << " " << y << " " << x;
            }
          }
        }
      }
    }
  });
}

// An affine op and the reference's map, for an image.
struct AffineCase {
  AffineSpec op;
  AffineMap map;
};

std::vector<AffineCase> AffineCases(const PlanarImage& image) {
  std::vector<AffineCase> cases;
  const double center_x = 0.5 * image.width;
  const double center_y = 0.5 * image.height;
  const auto add = [&](double angle, PointXy translate, double scale,
                       PointXy shear, std::optional<PointXy> center) {
    AffineCase c;
    c.op = {.angle = angle,
            .translate = translate,
            .scale = scale,
            .shear = shear,
            .center = center};
    c.map = {angle,
             translate.x,
             translate.y,
             scale,
             shear.x,
             shear.y,
             center.has_value() ? center->x : center_x,
             center.has_value() ? center->y : center_y};
    cases.push_back(c);
  };
  add(0.0, {}, 1.0, {}, std::nullopt);
  add(10.0, {}, 1.0, {}, std::nullopt);
  add(-90.0, {}, 1.0, {}, std::nullopt);
  add(180.0, {}, 1.0, {}, PointXy{0.0, 0.0});
  add(33.0, {3.0, -2.0}, 0.7, {12.0, -7.0}, std::nullopt);
  add(-200.5, {-1.0, 4.0}, 1.9, {-25.0, 0.0}, PointXy{3.0, 1.5});
  return cases;
}

TEST(ChainTest, BilinearAffineIsTheReference) {
  ForImages([](const TestImage& image) {
    for (AffineCase& c : AffineCases(image.planar)) {
      SCOPED_TRACE(absl::StrCat("angle ", c.op.angle));
      c.op.interpolation = InterpolationMode::kBilinear;
      ExpectNear(image, {c.op},
                 reference::AffineBilinear(image.planar, c.map, std::nullopt),
                 1e-4);
      std::vector<double> fill;
      for (int i = 0; i < image.planar.channels; ++i) {
        c.op.fill.push_back(static_cast<float>(0.25 * (i + 1)));
        fill.push_back(0.25 * (i + 1));
      }
      ExpectNear(image, {c.op},
                 reference::AffineBilinear(image.planar, c.map, fill), 1e-4);
    }
  });
}

TEST(ChainTest, NearestAffineTakesAPixel) {
  ForImages([](const TestImage& image) {
    for (AffineCase& c : AffineCases(image.planar)) {
      SCOPED_TRACE(absl::StrCat("angle ", c.op.angle));
      c.op.fill = {0.125f};
      const FieldProgram field = CompileToFloat(image, {c.op});
      const std::vector<float> actual =
          ChainRunner(field, image.bytes).All().Floats(field);
      const auto value = [&](int channel, int y, int x) {
        const bool is_inside = y >= 0 && y < image.planar.height && x >= 0 &&
                               x < image.planar.width;
        return is_inside ? image.planar.at(channel, y, x) : 0.125;
      };
      size_t i = 0;
      for (int k = 0; k < image.planar.channels; ++k) {
        for (int y = 0; y < image.planar.height; ++y) {
          for (int x = 0; x < image.planar.width; ++x, ++i) {
            const reference::Point point = SourcePoint(c.map, y, x);
            bool is_one = false;
            for (const double slack_y : {-1e-4, 1e-4}) {
              for (const double slack_x : {-1e-4, 1e-4}) {
                const int from_y =
                    static_cast<int>(std::floor(point.y + slack_y + 0.5));
                const int from_x =
                    static_cast<int>(std::floor(point.x + slack_x + 0.5));
                is_one = is_one || static_cast<double>(actual[i]) ==
                                       value(k, from_y, from_x);
              }
            }
            ASSERT_TRUE(is_one) << k << " " << y << " " << x;
          }
        }
      }
    }
  });
}

TEST(ChainTest, RotateIsCounterClockwise) {
  const TestImage image({31, 33}, 3, Dtype::kUint8);
  AffineMap map;
  map.angle = -20.0;
  map.center_x = 16.5;
  map.center_y = 15.5;
  ExpectNear(image,
             {RotateSpec{.angle = 20.0,
                         .interpolation = InterpolationMode::kBilinear}},
             reference::AffineBilinear(image.planar, map, std::nullopt), 1e-4);
}

TEST(ChainTest, MovesFoldIntoAResize) {
  ForImages([](const TestImage& image) {
    PlanarImage expected =
        reference::Resize(image.planar, 40, 37, Filter::kBilinear, true);
    expected = reference::FlipLeftRight(expected);
    expected = reference::PadConstant(
        expected, 5, 1, 2, 3, std::vector<double>(image.planar.channels, 1.0));
    expected = reference::FlipUpDown(expected);
    expected = reference::Crop(expected, 2, 3, 40, 33);
    ExpectNear(
        image,
        {ResizeTo(40, 37, InterpolationMode::kBilinear, true),
         HorizontalFlipSpec{},
         PadSpec{.padding = {.left = 5, .top = 1, .right = 2, .bottom = 3},
                 .fill = {1.0f}},
         VerticalFlipSpec{},
         CropSpec{.top = 2, .left = 3, .height = 40, .width = 33}},
        expected, 1e-5);
  });
}

reference::ColourImage ToColour(const PlanarImage& image, bool is_uint8) {
  reference::ColourImage colour;
  colour.is_uint8 = is_uint8;
  colour.planes.resize(image.channels);
  for (int c = 0; c < image.channels; ++c) {
    colour.planes[c].resize(image.height);
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        colour.planes[c][y].push_back(image.at(c, y, x));
      }
    }
  }
  return colour;
}

PlanarImage FromColour(const reference::ColourImage& colour) {
  PlanarImage image(static_cast<int>(colour.planes.size()),
                    static_cast<int>(colour.planes[0].size()),
                    static_cast<int>(colour.planes[0][0].size()));
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        image.at(c, y, x) = colour.planes[c][y][x];
      }
    }
  }
  return image;
}

// Geometry between colours, two statistics in one sweep, and a neighbourhood.
// Floating point, so that no whole gray amplifies a difference.
TEST(ChainTest, LongChainIsTheReferencesInTurn) {
  for (const Shape& shape : kShapes) {
    for (const int channels : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(shape.height, "x", shape.width));
      const TestImage image(shape, channels, Dtype::kFloat32);
      PlanarImage expected = reference::FlipUpDown(image.planar);
      auto colour = ToColour(expected, false);
      colour = reference::AdjustBrightness(colour, 1.2);
      colour = reference::AdjustContrast(colour, 0.6);
      colour = reference::AdjustContrast(colour, 1.5);
      expected = reference::Resize(FromColour(colour), 33, 45,
                                   Filter::kBilinear, true);
      colour = reference::AdjustSharpness(ToColour(expected, false), 1.7);
      colour = reference::GaussianBlur(colour, 5, 3, 0.8);
      colour = reference::AdjustHue(colour, 0.2);
      expected = reference::FlipLeftRight(FromColour(colour));
      colour = reference::AdjustSaturation(ToColour(expected, false), 0.5);
      ExpectNear(
          image,
          {VerticalFlipSpec{}, AdjustBrightnessSpec{1.2},
           AdjustContrastSpec{0.6}, AdjustContrastSpec{1.5},
           ResizeTo(33, 45, InterpolationMode::kBilinear, true),
           AdjustSharpnessSpec{1.7},
           GaussianBlurSpec{
               .kernel_height = 3, .kernel_width = 5, .sigma = {0.8, 0.8}},
           AdjustHueSpec{0.2}, HorizontalFlipSpec{}, AdjustSaturationSpec{0.5}},
          FromColour(colour), 1e-4);
    }
  }
}

TEST(ChainTest, WholeNumberOpsAreExact) {
  for (const int channels : {1, 3}) {
    const TestImage image({123, 66}, channels, Dtype::kUint8);
    auto colour = ToColour(image.planar, true);
    colour = reference::Posterize(colour, 3);
    colour = reference::Equalize(colour);
    colour = reference::Solarize(colour, 99.0);
    colour = reference::Autocontrast(colour);
    colour = reference::Invert(colour);
    ExpectNear(image,
               {PosterizeSpec{3}, EqualizeSpec{}, SolarizeSpec{99.0},
                AutocontrastSpec{}, InvertSpec{}},
               FromColour(colour), 0.0);
  }
}

TEST(ChainTest, EveryResidentDtypeIsRead) {
  for (const Dtype dtype :
       {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
    for (const int channels : {1, 2, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(DtypeName(dtype), " ", channels));
      const TestImage image({31, 33}, channels, dtype);
      ExpectNear(
          image, {ResizeTo(20, 50, InterpolationMode::kBilinear, true)},
          reference::Resize(image.planar, 20, 50, Filter::kBilinear, true),
          1e-5);
    }
  }
}

TEST(ChainTest, HalvesWithoutOpsAreCopied) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const TestImage image({31, 33}, 3, dtype);
    const FieldProgram field = Compile(image.field(), {}, Layout::kNhwc);
    EXPECT_EQ(field.num_steps, 1);
    EXPECT_EQ(ChainRunner(field, image.bytes).All().bytes, image.bytes);
  }
}

// The ops of the fast path, run as a chain.
TEST(ChainTest, MovesAreThoseOfTheFastPath) {
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat32}) {
      for (const Dtype out : {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16,
                              Dtype::kFloat32}) {
        if (out == Dtype::kUint8 && dtype != Dtype::kUint8) continue;
        const TestImage image({31, 33}, 3, dtype);
        std::vector<TransformSpec> ops = {
            RandomCropSpec{.height = 32,
                           .width = 32,
                           .padding = {4, 4, 4, 4},
                           .padding_mode = PaddingMode::kReflect},
            RandomHorizontalFlipSpec{},
            PadSpec{.padding = {1, 2, 3, 4}, .fill = {1.0f, 0.0f, 1.0f}},
            RandomVerticalFlipSpec{}};
        if (out != Dtype::kUint8) {
          ops.push_back(ToDtypeSpec{.dtype = out, .scale = true});
          ops.push_back(NormalizeSpec{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}});
        }
        const FieldProgram fast = Compile(image.field(), ops, layout);
        ASSERT_EQ(fast.num_steps, 0);
        // Draws nothing that the others see, and is never applied here.
        ops.push_back(RandomErasingSpec{.p = 1e-30});
        const FieldProgram chain = Compile(image.field(), ops, layout);
        ASSERT_GT(chain.num_steps, 0);
        const ChainRunner fast_runner(fast, image.bytes);
        const ChainRunner chain_runner(chain, image.bytes);
        for (int64_t sample = 0; sample < 5; ++sample) {
          EXPECT_EQ(chain_runner.All(3, sample).bytes,
                    fast_runner.Host(3, sample).bytes);
        }
      }
    }
  }
}

// Every random op at once; the ways to run them agree, and the draws depend on
// the sample.
TEST(ChainTest, RandomChainHasTheSameBitsEverywhere) {
  for (const Dtype out : {Dtype::kFloat32, Dtype::kFloat16}) {
    const TestImage image({40, 33}, 3, Dtype::kUint8);
    const std::vector<TransformSpec> ops = {
        RandomResizedCropSpec{.height = 36, .width = 35},
        RandomHorizontalFlipSpec{},
        RandomAffineSpec{.degrees = {-30.0, 30.0},
                         .translate = PointXy{0.1, 0.2},
                         .scale = Interval{0.8, 1.2},
                         .shear_x = Interval{-5.0, 5.0},
                         .interpolation = InterpolationMode::kBilinear,
                         .fill = {3.0f}},
        ColorJitterSpec{.brightness = Interval{0.5, 1.5},
                        .contrast = Interval{0.5, 1.5},
                        .saturation = Interval{0.5, 1.5},
                        .hue = Interval{-0.2, 0.2}},
        RandomGrayscaleSpec{0.3},
        RandomPosterizeSpec{4, 0.4},
        RandomSolarizeSpec{128.0, 0.4},
        RandomAdjustSharpnessSpec{2.0, 0.5},
        RandomAutocontrastSpec{0.5},
        RandomEqualizeSpec{0.5},
        RandomApplySpec{
            {GaussianBlurSpec{.kernel_height = 5, .kernel_width = 3},
             RandomInvertSpec{0.5}},
            0.5},
        ToDtypeSpec{.dtype = out, .scale = true},
        RandomErasingSpec{.p = 0.5, .is_value_random = true},
        NormalizeSpec{{0.5}, {0.25}},
        CutoutSpec{.size = 8}};
    const FieldProgram field = Compile(image.field(), ops, Layout::kNhwc);
    const ChainRunner runner(field, image.bytes);
    std::vector<uint8_t> previous;
    for (int64_t sample = 0; sample < 30; ++sample) {
      SCOPED_TRACE(sample);
      std::vector<uint8_t> bytes = runner.All(1, sample).bytes;
      EXPECT_NE(bytes, previous);
      previous = std::move(bytes);
    }
  }
}

// A row keeps of the one before what is the same.
TEST(ChainTest, RowsOfABatchAreThoseOfBatchesOfOne) {
  const TestImage image({40, 33}, 3, Dtype::kUint8);
  const ResizeSpec down = ResizeTo(30, 41, InterpolationMode::kBilinear, true);
  const ResizeSpec up = ResizeTo(50, 41, InterpolationMode::kBilinear, true);
  const TransformSpec flips[] = {RandomHorizontalFlipSpec{},
                                 RandomVerticalFlipSpec{}};
  const AdjustBrightnessSpec brighter = {1.3};
  const std::vector<TransformSpec> chains[] = {
      {down, flips[0], flips[1]},
      {RandomResizedCropSpec{.height = 30, .width = 41}, flips[0], flips[1]},
      // Another resize between.
      {down, flips[0], flips[1], brighter, up, flips[0], flips[1]},
      // Moves alone between, which use the maps.
      {down, flips[0], flips[1], brighter, flips[0], flips[1]},
      {down, flips[1], brighter, RandomCropSpec{.height = 30, .width = 30}},
  };
  std::vector<int64_t> samples(40);
  std::iota(samples.begin(), samples.end(), 0);
  for (const std::vector<TransformSpec>& ops : chains) {
    SCOPED_TRACE(&ops - chains);
    const ChainRunner runner(CompileToFloat(image, ops), image.bytes);
    std::vector<uint8_t> expected;
    for (const int64_t sample : samples) {
      const std::vector<uint8_t> row = runner.Host(2, sample).bytes;
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(runner.Host(2, samples).bytes, expected);
  }
}

// What explain tells, done by the reference.
TEST(ChainTest, RandomResizedCropShowsTheExplainedWindow) {
  const TestImage image({123, 66}, 3, Dtype::kUint8);
  const FieldProgram field =
      CompileToFloat(image, {RandomResizedCropSpec{.height = 48, .width = 50}});
  const ChainRunner runner(field, image.bytes);
  for (int64_t sample = 0; sample < 20; ++sample) {
    const auto draws = ExplainSample(runner.program(), 2, sample);
    ASSERT_THAT(draws.status(), IsOk());
    ASSERT_EQ(draws->size(), 1u);
    const auto& parameters = (*draws)[0].parameters;
    ASSERT_EQ((*draws)[0].name, "Resize");
    ASSERT_EQ(parameters.size(), 5u);
    const auto number = [&](int i) {
      return static_cast<int>(parameters[i].second[0]);
    };
    const PlanarImage expected =
        reference::Resize(reference::Crop(image.planar, number(0), number(1),
                                          number(2), number(3)),
                          48, 50, Filter::kBilinear, true);
    const std::vector<float> actual = runner.Host(2, sample).Floats(field);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected.values[i], 1e-5 * 255.0);
    }
  }
}

// As RandomResizedCrop falls back: the widest window of a ratio in the middle.
TEST(ChainTest, RandomResizedCropFallsBackToTheMiddle) {
  const TestImage image({10, 100}, 1, Dtype::kUint8);
  const FieldProgram field = Compile(
      image.field(),
      {RandomResizedCropSpec{
          .height = 5, .width = 5, .scale = {1.0, 1.0}, .ratio = {1.0, 2.0}}});
  const ChainRunner runner(field, image.bytes);
  const auto draws = ExplainSample(runner.program(), 0, 0);
  ASSERT_THAT(draws.status(), IsOk());
  using Parameter = std::pair<std::string, std::vector<double>>;
  EXPECT_EQ((*draws)[0].parameters,
            (std::vector<Parameter>{{"top", {0.0}},
                                    {"left", {40.0}},
                                    {"height", {10.0}},
                                    {"width", {20.0}},
                                    {"size", {5.0, 5.0}}}));
}

TEST(ChainTest, GroupIsAppliedWhollyOrNot) {
  const TestImage image({8, 8}, 3, Dtype::kUint8);
  const FieldProgram field =
      Compile(image.field(),
              {RandomApplySpec{{InvertSpec{}, HorizontalFlipSpec{}}, 0.5}});
  const ChainRunner runner(field, image.bytes);
  PlanarImage changed = reference::FlipLeftRight(image.planar);
  for (double& value : changed.values) value = 255.0 - value;
  int num_changed = 0;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const std::vector<float> actual = runner.Host(0, sample).Floats(field);
    const std::vector<double> values(actual.begin(), actual.end());
    ASSERT_TRUE(values == changed.values || values == image.planar.values);
    if (values == changed.values) ++num_changed;
  }
  // Seven sigma.
  EXPECT_NEAR(num_changed, 100, 50);
}

TEST(ChainTest, GrayscaleChangesTheChannels) {
  for (const auto& [from, to] : {std::pair(3, 1), {1, 3}, {3, 3}, {1, 1}}) {
    const TestImage image({31, 33}, from, Dtype::kUint8);
    const auto gray = reference::Grayscale(ToColour(image.planar, true), to);
    // Through scratch memory, and straight to the slot.
    ExpectNear(image, {GrayscaleSpec{to}}, FromColour(gray), 0.0);
    ExpectNear(image, {GrayscaleSpec{to}, HorizontalFlipSpec{}},
               reference::FlipLeftRight(FromColour(gray)), 0.0);
  }
}

// 1 / std is no float, 0 / std is 0.
TEST(ChainTest, NormalizeAfterAResizeTakesAnyStd) {
  const TestImage image({31, 33}, 3, Dtype::kUint8);
  const FieldProgram field = Compile(
      image.field(),
      {ResizeTo(16, 16, InterpolationMode::kBilinear, true), ToDtypeSpec{},
       NormalizeSpec{{0.0, 0.0, 0.0}, {1e-40, 1e-40, 1e-40}}});
  const ChainRunner runner(field, std::vector<uint8_t>(image.bytes.size(), 0));
  EXPECT_EQ(runner.All().Floats(field),
            std::vector<float>(size_t{16} * 16 * 3, 0.0f));
}

}  // namespace
}  // namespace datasetd
