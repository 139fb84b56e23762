#include "client/ctl/preview/picture_numbers.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

v1::Pipeline ToFloat(bool scale) {
  v1::Pipeline pipeline;
  v1::ToDtype* const op = pipeline.add_transforms()->mutable_to_dtype();
  op->set_dtype(v1::DTYPE_FLOAT32);
  op->set_scale(scale);
  return pipeline;
}

v1::Normalize* AddNormalize(v1::Pipeline* pipeline) {
  return pipeline->add_transforms()->mutable_normalize();
}

TEST(PictureNumbersTest, EveryLevelComesBack) {
  v1::Pipeline pipeline = ToFloat(true);
  pipeline.add_transforms()->mutable_random_horizontal_flip();
  v1::Normalize* const normalize = AddNormalize(&pipeline);
  for (const double mean : {0.485, 0.456, 0.406}) normalize->add_mean(mean);
  for (const double std : {0.229, 0.224, 0.225}) normalize->add_std(std);
  const PictureNumbers numbers(v1::DTYPE_UINT8, pipeline);
  for (int level = 0; level < 256; ++level) {
    for (int c = 0; c < 3; ++c) {
      const float number = static_cast<float>(
          (level / 255.0 - normalize->mean(c)) / normalize->std(c));
      EXPECT_EQ(numbers.Level(c, number), level);
    }
  }
}

TEST(PictureNumbersTest, WithoutScaleNumbersAreLevels) {
  v1::Pipeline pipeline = ToFloat(false);
  EXPECT_EQ(PictureNumbers(v1::DTYPE_UINT8, pipeline).Level(0, 77.0f), 77);
  // One value for all channels.
  AddNormalize(&pipeline)->add_mean(100);
  pipeline.mutable_transforms(1)->mutable_normalize()->add_std(2);
  EXPECT_EQ(PictureNumbers(v1::DTYPE_UINT8, pipeline).Level(2, -10.0f), 80);
}

TEST(PictureNumbersTest, ResidentFloatsGoFromZeroToOne) {
  EXPECT_EQ(PictureNumbers(v1::DTYPE_FLOAT32, {}).Level(0, 0.2f), 51);
  // Only bytes are scaled.
  EXPECT_EQ(PictureNumbers(v1::DTYPE_FLOAT32, ToFloat(true)).Level(0, 1.0f),
            255);
}

TEST(PictureNumbersTest, WhatIsOutsideIsCut) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const PictureNumbers numbers(v1::DTYPE_UINT8, ToFloat(true));
  EXPECT_EQ(numbers.Level(0, -3.0f), 0);
  EXPECT_EQ(numbers.Level(0, 3.0f), 255);
  EXPECT_EQ(numbers.Level(0, kInfinity), 255);
  EXPECT_EQ(numbers.Level(0, -kInfinity), 0);
  EXPECT_EQ(numbers.Level(0, std::nanf("")), 0);
}

}  // namespace
}  // namespace datasetd::ctl
