// Rotate, Affine, RandomRotation, RandomAffine: maps output pixels to points of
// the image.
//
// As torchvision on tensors: angles are in degrees, the inverse matrix acts on
// pixel centres relative to the image's centre.

#ifndef DATASETD_CUDA_KERNELS_OPS_AFFINE_H_
#define DATASETD_CUDA_KERNELS_OPS_AFFINE_H_

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/warp.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Ranges are [low, high]; equal ends are fixed values.
struct AffineParams : WarpParams {
  // True for RandomAffine: the translation is a whole number of pixels, at most
  // `translate` in either direction. Else it is `translate`.
  bool is_translate_random;
  float angle[2];      // clockwise
  float translate[2];  // x, y; pixels
  float scale[2];
  float shear_x[2], shear_y[2];
  float center[2];  // x, y; relative to the image's centre
};

struct AffineDraw {
  // source = matrix * (x, y, 1)
  float matrix[2][3];
  // The drawn parameters.
  float angle, translate[2], scale, shear[2];
};

static_assert(std::is_trivially_copyable_v<AffineParams>);

inline bool DrawsBySize(const AffineParams& params) {
  return params.is_translate_random;
}

template <typename Visit>
void VisitDrawn(const AffineDraw& draw, const Step& step, const DrawKey&,
                const Visit& visit) {
  visit("angle", draw.angle);
  visit("translate", draw.translate[0], draw.translate[1]);
  visit("scale", draw.scale);
  visit("shear", draw.shear[0], draw.shear[1]);
  // A Rotate may expand the image.
  if (step.out_height != step.in_height || step.out_width != step.in_width) {
    visit("size", step.out_height, step.out_width);
  }
}

// Sets the matrix to `inverse` about `center`, both relative to the image's
// centre, for draw->translate.
DATASETD_HOST_DEVICE inline void SetAffineMatrix(const double (&inverse)[2][2],
                                                 const float (&center)[2],
                                                 int height, int width,
                                                 AffineDraw* draw) {
  const double middle[2] = {0.5 * width - 0.5, 0.5 * height - 0.5};
  const double from_x =
      static_cast<double>(center[0]) + static_cast<double>(draw->translate[0]);
  const double from_y =
      static_cast<double>(center[1]) + static_cast<double>(draw->translate[1]);
  for (int i = 0; i < 2; ++i) {
    draw->matrix[i][0] = static_cast<float>(inverse[i][0]);
    draw->matrix[i][1] = static_cast<float>(inverse[i][1]);
    draw->matrix[i][2] = static_cast<float>(static_cast<double>(center[i]) -
                                            inverse[i][0] * from_x -
                                            inverse[i][1] * from_y + middle[i]);
  }
}

// Draw 1: angle, translate x, translate y, scale; draw 2: shear x, shear y.
DATASETD_HOST_DEVICE inline AffineDraw DrawAffine(const AffineParams& params,
                                                  const DrawKey& key,
                                                  int height, int width) {
  AffineDraw draw;
  const Words4 first = DrawWords(key, 1);
  const Words4 second = DrawWords(key, 2);
  draw.angle = UniformBetween(first.word[0], params.angle[0], params.angle[1]);
  for (int i = 0; i < 2; ++i) {
    draw.translate[i] = params.translate[i];
    if (params.is_translate_random) {
      draw.translate[i] = RoundHalfEven(UniformBetween(
          first.word[1 + i], -params.translate[i], params.translate[i]));
    }
  }
  draw.scale = UniformBetween(first.word[3], params.scale[0], params.scale[1]);
  draw.shear[0] =
      UniformBetween(second.word[0], params.shear_x[0], params.shear_x[1]);
  draw.shear[1] =
      UniformBetween(second.word[1], params.shear_y[0], params.shear_y[1]);

  const double angle = Quotient(static_cast<double>(draw.angle), 180.0);
  const double shear_y = Quotient(static_cast<double>(draw.shear[1]), 180.0);
  const SinCos of_x =
      SinCosPi(Quotient(static_cast<double>(draw.shear[0]), 180.0));
  const SinCos of_y = SinCosPi(shear_y);
  const SinCos rotation = SinCosPi(angle);
  const SinCos rest = SinCosPi(angle - shear_y);
  const double tan_x = Quotient(of_x.sin, of_x.cos);
  const double a = Quotient(rest.cos, of_y.cos);
  const double b = -(a * tan_x) - rotation.sin;
  const double c = Quotient(rest.sin, of_y.cos);
  const double d = rotation.cos - c * tan_x;
  const double inverse[2][2] = {
      {Quotient(d, draw.scale), Quotient(-b, draw.scale)},
      {Quotient(-c, draw.scale), Quotient(a, draw.scale)}};
  SetAffineMatrix(inverse, params.center, height, width, &draw);
  return draw;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_AFFINE_H_
