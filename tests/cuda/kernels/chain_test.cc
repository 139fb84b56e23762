// Compiled pipelines against the naive references, and all ways to run them
// against each other, bit for bit.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/math/rounding.h"
#include "gtest/gtest.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/pipeline.h"
#include "tests/cuda/kernels/chain_runner.h"
#include "tests/reference/colour_reference.h"
#include "tests/reference/geometry_reference.h"
#include "tests/testing/long_form.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

using reference::AffineMap;
using reference::Filter;
using reference::PlanarImage;
using testing::ChainRunner;
using testing::IsOk;
using testing::RunsCase;

struct Shape {
  int height, width;
};
// The kernels' PTX is interpreted: the large one is smaller in the short form.
const Shape kShapes[] = {
    {1, 1},   {2, 3},    {31, 33},
    {32, 32}, {123, 66}, testing::IsFull() ? Shape{224, 224} : Shape{96, 112},
    {5, 300}};

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

FieldProgram Compile(const FieldSpec& field, Transforms ops,
                     Layout layout = Layout::kNchw) {
  auto program = CompileField(field, 0, ops, layout);
  EXPECT_THAT(program.status(), IsOk());
  return program.ok() ? *program : FieldProgram{};
}

// Without rounding to uint8 at the end.
FieldProgram CompileToFloat(const TestImage& image, Transforms ops) {
  if (image.dtype != Dtype::kFloat32) {
    ops.push_back(Op("to_dtype { dtype: DTYPE_FLOAT32 scale: false }"));
  }
  return Compile(image.field(), std::move(ops));
}

// Runs and compares; `tolerance` is a part of the image's bound.
void ExpectNear(const TestImage& image, const Transforms& ops,
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
    // Written so that NaN counts.
    if (!(difference <= worst)) {
      worst = difference;
      worst_at = i;
    }
  }
  EXPECT_LE(worst, tolerance * image.bound())
      << "at " << worst_at << ": " << actual[worst_at] << ", must be "
      << expected.values[worst_at];
}

// Calls check(image, sum): the sum is for RunsCase, with the indices on axes of
// the caller's own.
template <typename Check>
void ForImages(const Check& check) {
  for (const Shape& shape : kShapes) {
    for (const int channels : {1, 3}) {
      for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat32}) {
        const size_t index = &shape - kShapes;
        const size_t is_float = dtype == Dtype::kFloat32 ? 1 : 0;
        if (!RunsCase(index + channels / 2 + is_float, 2)) continue;
        SCOPED_TRACE(absl::StrCat(shape.height, "x", shape.width, "x", channels,
                                  " ", DtypeName(dtype)));
        check(TestImage(shape, channels, dtype), index / 2 + channels / 2);
      }
    }
  }
}

v1::Transform ResizeTo(int height, int width, InterpolationMode interpolation,
                       bool antialias) {
  return Op(
      "resize { size { height: $0 width: $1 } interpolation: $2 "
      "antialias: $3 }",
      height, width, interpolation, antialias);
}

PlanarImage Clamped(PlanarImage image, double bound) {
  for (double& value : image.values) value = std::clamp(value, 0.0, bound);
  return image;
}

TEST(ChainTest, ResizeIsTheReference) {
  ForImages([](const TestImage& image, size_t sum) {
    for (const Shape& to : {Shape{1, 1}, Shape{7, 50}, Shape{64, 40}}) {
      ++sum;
      for (const bool antialias : {true, false}) {
        if (!RunsCase(sum + (antialias ? 1 : 0), 2)) continue;
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

// Vectors have a way of their own for it.
TEST(ChainTest, HalvedWidthIsTheReference) {
  for (const Shape from : {Shape{24, 64}, Shape{32, 96}, Shape{40, 128},
                           Shape{16, 64}, Shape{24, 320}, Shape{24, 36}}) {
    for (const int channels : {1, 3}) {
      const TestImage image(from, channels, Dtype::kUint8);
      const int width = from.width / 2;
      SCOPED_TRACE(absl::StrCat(from.height, "x", from.width, "x", channels));
      const v1::Transform resize =
          ResizeTo(16, width, InterpolationMode::kBilinear, true);
      const PlanarImage halved =
          reference::Resize(image.planar, 16, width, Filter::kBilinear, true);
      const auto expect = [&](const Transforms& ops,
                              const PlanarImage& expected) {
        ExpectNear(image, ops, expected, 1e-5);
      };
      expect({resize}, halved);
      const v1::Transform flip = Op("horizontal_flip {}");
      expect({resize, flip}, reference::FlipLeftRight(halved));
      expect({resize, Op("vertical_flip {}"), flip},
             reference::FlipUpDown(reference::FlipLeftRight(halved)));
      // Does not begin with the first column, or does not end with the last.
      expect({resize, Op("crop { left: 1 height: 16 width: $0 }", width - 1)},
             reference::Crop(halved, 0, 1, 16, width - 1));
      expect({resize, Op("crop { height: 16 width: $0 }", width - 2)},
             reference::Crop(halved, 0, 0, 16, width - 2));
      expect({resize, Op("pad { padding { left: 1 right: 1 } }"),
              Op("crop { height: 16 width: $0 }", width)},
             reference::Crop(
                 reference::PadConstant(halved, 1, 0, 1, 0,
                                        std::vector<double>(channels, 0.0)),
                 0, 0, 16, width));
      expect({Op("resized_crop { top: 1 left: 3 height: 15 width: 32 "
                 "size { height: 10 width: 16 } }"),
              flip},
             reference::FlipLeftRight(
                 reference::Resize(reference::Crop(image.planar, 1, 3, 15, 32),
                                   10, 16, Filter::kBilinear, true)));
      // Through lanes.
      PlanarImage darker = halved;
      for (double& value : darker.values) value *= 0.5;
      expect({resize, Op("adjust_brightness { brightness_factor: 0.5 }")},
             darker);
      expect({resize, flip, Op("adjust_brightness { brightness_factor: 0.5 }")},
             reference::FlipLeftRight(darker));
    }
  }
}

TEST(ChainTest, NearestResizeTakesAPixel) {
  ForImages([](const TestImage& image, size_t sum) {
    for (const Shape& to : {Shape{1, 1}, Shape{7, 50}, Shape{64, 64}}) {
      ++sum;
      for (const bool is_exact : {false, true}) {
        if (!RunsCase(sum + (is_exact ? 1 : 0), 2)) continue;
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
  v1::Transform op;
  AffineMap map;
};

std::vector<AffineCase> AffineCases(const PlanarImage& image) {
  std::vector<AffineCase> cases;
  const double center_x = 0.5 * image.width;
  const double center_y = 0.5 * image.height;
  struct Point {
    double x = 0.0;
    double y = 0.0;
  };
  const auto add = [&](double angle, Point translate, double scale, Point shear,
                       std::optional<Point> center) {
    AffineCase c;
    c.op =
        Op("affine { angle: $0 translate { x: $1 y: $2 } scale: $3 "
           "shear { x: $4 y: $5 } }",
           angle, translate.x, translate.y, scale, shear.x, shear.y);
    if (center.has_value()) {
      c.op.mutable_affine()->mutable_center()->set_x(center->x);
      c.op.mutable_affine()->mutable_center()->set_y(center->y);
    }
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
  add(180.0, {}, 1.0, {}, Point{0.0, 0.0});
  add(33.0, {3.0, -2.0}, 0.7, {12.0, -7.0}, std::nullopt);
  add(-200.5, {-1.0, 4.0}, 1.9, {-25.0, 0.0}, Point{3.0, 1.5});
  return cases;
}

TEST(ChainTest, BilinearAffineIsTheReference) {
  ForImages([](const TestImage& image, size_t sum) {
    for (AffineCase& c : AffineCases(image.planar)) {
      if (!RunsCase(++sum, 2)) continue;
      SCOPED_TRACE(absl::StrCat("angle ", c.map.angle));
      c.op.mutable_affine()->set_interpolation(v1::INTERPOLATION_MODE_BILINEAR);
      ExpectNear(image, {c.op},
                 reference::AffineBilinear(image.planar, c.map, std::nullopt),
                 1e-4);
      std::vector<double> fill;
      for (int i = 0; i < image.planar.channels; ++i) {
        c.op.mutable_affine()->add_fill(static_cast<float>(0.25 * (i + 1)));
        fill.push_back(0.25 * (i + 1));
      }
      ExpectNear(image, {c.op},
                 reference::AffineBilinear(image.planar, c.map, fill), 1e-4);
    }
  });
}

TEST(ChainTest, NearestAffineTakesAPixel) {
  ForImages([](const TestImage& image, size_t sum) {
    for (AffineCase& c : AffineCases(image.planar)) {
      if (!RunsCase(++sum, 2)) continue;
      SCOPED_TRACE(absl::StrCat("angle ", c.map.angle));
      c.op.mutable_affine()->add_fill(0.125f);
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

// Outside of an image there is nothing, not its first pixel times 0.
TEST(ChainTest, WhatIsNotFiniteInACornerStaysThere) {
  for (const int channels : {1, 3}) {
    for (const float corner : {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity()}) {
      TestImage image({8, 20}, channels, Dtype::kFloat32);
      for (int c = 0; c < channels; ++c) {
        std::memcpy(image.bytes.data() + 4 * c, &corner, sizeof(corner));
      }
      for (const char* fill : {"", "fill: 0.25"}) {
        const FieldProgram field = Compile(
            image.field(), {Op(absl::StrCat("affine { translate { x: 3 y: 2 } "
                                            "interpolation: "
                                            "INTERPOLATION_MODE_BILINEAR ",
                                            fill, " }"))});
        const std::vector<float> actual =
            ChainRunner(field, image.bytes).All().Floats(field);
        for (int c = 0; c < channels; ++c) {
          for (int y = 0; y < 8; ++y) {
            for (int x = 0; x < 20; ++x) {
              const auto value =
                  static_cast<double>(actual[(c * 8 + y) * 20 + x]);
              // Neighbours inside count even with weight 0, as in grid_sample.
              if ((y == 1 || y == 2) && (x == 2 || x == 3)) {
                EXPECT_FALSE(std::isfinite(value));
              } else if (y >= 2 && x >= 3) {
                EXPECT_EQ(value, image.planar.at(c, y - 2, x - 3));
              } else {
                EXPECT_EQ(value, *fill == '\0' ? 0.0 : 0.25) << y << " " << x;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ChainTest, RotateIsCounterClockwise) {
  const TestImage image({31, 33}, 3, Dtype::kUint8);
  AffineMap map;
  map.angle = -20.0;
  map.center_x = 16.5;
  map.center_y = 15.5;
  ExpectNear(
      image,
      {Op("rotate { angle: 20.0 interpolation: INTERPOLATION_MODE_BILINEAR }")},
      reference::AffineBilinear(image.planar, map, std::nullopt), 1e-4);
}

TEST(ChainTest, MovesFoldIntoAResize) {
  ForImages([](const TestImage& image, size_t) {
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
         Op("horizontal_flip {}"),
         Op("pad { padding { left: 5 top: 1 right: 2 bottom: 3 } fill: 1.0 }"),
         Op("vertical_flip {}"),
         Op("crop { top: 2 left: 3 height: 40 width: 33 }")},
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

// Geometry between colours, two statistics, and a neighbourhood.
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
          {Op("vertical_flip {}"),
           Op("adjust_brightness { brightness_factor: 1.2 }"),
           Op("adjust_contrast { contrast_factor: 0.6 }"),
           Op("adjust_contrast { contrast_factor: 1.5 }"),
           ResizeTo(33, 45, InterpolationMode::kBilinear, true),
           Op("adjust_sharpness { sharpness_factor: 1.7 }"),
           Op("gaussian_blur { kernel_size { height: 3 width: 5 } sigma { min: "
              "0.8 max: 0.8 } }"),
           Op("adjust_hue { hue_factor: 0.2 }"), Op("horizontal_flip {}"),
           Op("adjust_saturation { saturation_factor: 0.5 }")},
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
               {Op("posterize { bits: 3 }"), Op("equalize {}"),
                Op("solarize { threshold: 99.0 }"), Op("autocontrast {}"),
                Op("invert {}")},
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
        Transforms ops = {
            Op("random_crop { height: 32 width: 32 padding { left: 4 top: 4 "
               "right: 4 bottom: 4 } padding_mode: PADDING_MODE_REFLECT }"),
            Op("random_horizontal_flip {}"),
            Op("pad { padding { left: 1 top: 2 right: 3 bottom: 4 } fill: "
               "[1.0, 0.0, 1.0] }"),
            Op("random_vertical_flip {}")};
        if (out != Dtype::kUint8) {
          ops.push_back(Op("to_dtype { dtype: $0 scale: true }", out));
          ops.push_back(
              Op("normalize { mean: [0.4, 0.5, 0.6] std: [0.2, 0.3, 0.4] }"));
        }
        const FieldProgram fast = Compile(image.field(), ops, layout);
        ASSERT_EQ(fast.num_steps, 0);
        // Draws nothing that the others see, and is never applied here.
        ops.push_back(Op("random_erasing { p: 1e-30 }"));
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
    const Transforms ops = {
        Op("random_resized_crop { size { height: 36 width: 35 } }"),
        Op("random_horizontal_flip {}"),
        Op("random_affine { degrees { min: -30.0 max: 30.0 } translate { x: "
           "0.1 y: 0.2 } scale { min: 0.8 max: 1.2 } shear_x { min: -5.0 max: "
           "5.0 } interpolation: INTERPOLATION_MODE_BILINEAR fill: 3.0 }"),
        Op("random_perspective { distortion_scale: 0.4 fill: 3.0 }"),
        Op("color_jitter { brightness { min: 0.5 max: 1.5 } contrast { min: "
           "0.5 max: 1.5 } saturation { min: 0.5 max: 1.5 } hue { min: -0.2 "
           "max: 0.2 } }"),
        Op("rand_augment {}"),
        Op("trivial_augment_wide { interpolation: INTERPOLATION_MODE_BILINEAR "
           "fill: 3.0 }"),
        Op("auto_augment { policy: AUTO_AUGMENT_POLICY_CIFAR10 }"),
        Op("random_grayscale { p: 0.3 }"),
        Op("random_posterize { bits: 4 p: 0.4 }"),
        Op("random_solarize { threshold: 128.0 p: 0.4 }"),
        Op("random_adjust_sharpness { sharpness_factor: 2.0 p: 0.5 }"),
        Op("random_autocontrast { p: 0.5 }"),
        Op("random_equalize { p: 0.5 }"),
        Op("random_apply { transforms { gaussian_blur { kernel_size { height: "
           "5 width: 3 } } } transforms { random_invert { p: 0.5 } } p: 0.5 }"),
        Op("to_dtype { dtype: $0 scale: true }", out),
        Op("random_erasing { p: 0.5 is_value_random: true }"),
        Op("gaussian_noise {}"),
        Op("normalize { mean: 0.5 std: 0.25 }"),
        Op("cutout { size: 8 }")};
    const FieldProgram field = Compile(image.field(), ops, Layout::kNhwc);
    const ChainRunner runner(field, image.bytes);
    std::vector<uint8_t> previous;
    const int64_t num_samples = testing::IsFull() ? 30 : 20;
    for (int64_t sample = 0; sample < num_samples; ++sample) {
      if (!RunsCase(sample + (out == Dtype::kFloat16 ? 1 : 0), 2)) continue;
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
  const v1::Transform down =
      ResizeTo(30, 41, InterpolationMode::kBilinear, true);
  const v1::Transform up = ResizeTo(50, 41, InterpolationMode::kBilinear, true);
  const v1::Transform flips[] = {Op("random_horizontal_flip {}"),
                                 Op("random_vertical_flip {}")};
  const v1::Transform brighter =
      Op("adjust_brightness { brightness_factor: 1.3 }");
  const Transforms chains[] = {
      {down, flips[0], flips[1]},
      {Op("random_resized_crop { size { height: 30 width: 41 } }"), flips[0],
       flips[1]},
      // Another resize between.
      {down, flips[0], flips[1], brighter, up, flips[0], flips[1]},
      // Moves alone between, which use the maps.
      {down, flips[0], flips[1], brighter, flips[0], flips[1]},
      {down, flips[1], brighter, Op("random_crop { height: 30 width: 30 }")},
  };
  std::vector<int64_t> samples(40);
  std::iota(samples.begin(), samples.end(), 0);
  for (const Transforms& ops : chains) {
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

// The reference crops and resizes the window that explain reports.
TEST(ChainTest, RandomResizedCropShowsTheExplainedWindow) {
  const TestImage image({123, 66}, 3, Dtype::kUint8);
  const FieldProgram field = CompileToFloat(
      image, {Op("random_resized_crop { size { height: 48 width: 50 } }")});
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
  const FieldProgram field =
      Compile(image.field(),
              {Op("random_resized_crop { size { height: 5 width: 5 } scale { "
                  "min: 1.0 max: 1.0 } ratio { min: 1.0 max: 2.0 } }")});
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
  const FieldProgram field = Compile(
      image.field(), {Op("random_apply { transforms { invert {} } transforms { "
                         "horizontal_flip {} } p: 0.5 }")});
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
    ExpectNear(image, {Op("grayscale { num_output_channels: $0 }", to)},
               FromColour(gray), 0.0);
    ExpectNear(image,
               {Op("grayscale { num_output_channels: $0 }", to),
                Op("horizontal_flip {}")},
               reference::FlipLeftRight(FromColour(gray)), 0.0);
  }
}

// 1 / std is no float, 0 / std is 0.
TEST(ChainTest, NormalizeAfterAResizeTakesAnyStd) {
  const TestImage image({31, 33}, 3, Dtype::kUint8);
  const FieldProgram field = Compile(
      image.field(),
      {ResizeTo(16, 16, InterpolationMode::kBilinear, true),
       Op("to_dtype { dtype: DTYPE_FLOAT32 }"),
       Op("normalize { mean: [0.0, 0.0, 0.0] std: [1e-40, 1e-40, 1e-40] }")});
  const ChainRunner runner(field, std::vector<uint8_t>(image.bytes.size(), 0));
  EXPECT_EQ(runner.All().Floats(field),
            std::vector<float>(size_t{16} * 16 * 3, 0.0f));
}

}  // namespace
}  // namespace datasetd
