// RandomErasing: sets a box of drawn area and shape to a value per channel, or
// to normal random numbers.
//
// Ten tries, draws 1 to 10: word 0 gives the area as a fraction of the image,
// word 1 the logarithm of height / width, words 2 and 3 top and left. The first
// box that is lower and narrower than the image is used; without one, nothing
// is erased. Pixel i takes its normal numbers from draw 16 + i (normal.h).

#ifndef DATASETD_CUDA_KERNELS_OPS_RANDOM_ERASING_H_
#define DATASETD_CUDA_KERNELS_OPS_RANDOM_ERASING_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/erase.h"
#include "cuda/kernels/ops/normal.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr uint32_t kNumErasingTries = 10;

struct RandomErasingParams {
  static constexpr int kOperationsPerElement = 64;

  float scale_low, scale_high;  // in [0, 1]
  float ratio_low, ratio_high;  // positive
  bool is_normal;
  float value[kMaxChannels];  // unless is_normal
};

inline bool DrawsBySize(const RandomErasingParams&) { return true; }

struct RandomErasingDraw {
  EraseDraw box;  // height 0 if nothing is erased
  int32_t image_width;
  bool is_normal;
};

template <typename Visit>
void VisitDrawn(const RandomErasingDraw& draw, const Step& step, const DrawKey&,
                const Visit& visit) {
  VisitBox(draw.box, visit);
  if (!draw.is_normal) visit.List("value", draw.box.value, step.out_channels);
}

// REQUIRES: the image has less than 2^31 pixels.
DATASETD_HOST_DEVICE inline RandomErasingDraw DrawRandomErasing(
    const RandomErasingParams& params, const DrawKey& key, int height,
    int width) {
  RandomErasingDraw draw = {};
  draw.image_width = width;
  draw.is_normal = params.is_normal;
  for (int c = 0; c < kMaxChannels; ++c) draw.box.value[c] = params.value[c];
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const double log_low = Log(static_cast<double>(params.ratio_low));
  const double log_high = Log(static_cast<double>(params.ratio_high));
  DATASETD_NO_UNROLL
  for (uint32_t i = 1; i <= kNumErasingTries; ++i) {
    const Words4 words = DrawWords(key, i);
    const double erased =
        area * static_cast<double>(UniformBetween(
                   words.word[0], params.scale_low, params.scale_high));
    const double log_ratio =
        log_low +
        (log_high - log_low) * static_cast<double>(UniformFloat(words.word[1]));
    const double ratio = Exp(log_ratio);
    const double box_height = RoundHalfEven(Sqrt(erased * ratio));
    const double box_width = RoundHalfEven(Sqrt(Quotient(erased, ratio)));
    if (!(box_height < height && box_width < width)) continue;
    draw.box.height = static_cast<int32_t>(box_height);
    draw.box.width = static_cast<int32_t>(box_width);
    draw.box.top = static_cast<int32_t>(UniformInt(
        words.word[2], static_cast<uint32_t>(height - draw.box.height + 1)));
    draw.box.left = static_cast<int32_t>(UniformInt(
        words.word[3], static_cast<uint32_t>(width - draw.box.width + 1)));
    break;
  }
  return draw;
}

DATASETD_HOST_DEVICE inline void ApplyRandomErasing(
    const RandomErasingDraw& draw, const DrawKey& key, int y, int x,
    int num_channels, float* pixel) {
  if (!draw.is_normal || !IsErased(draw.box, y, x)) {
    ApplyErase(draw.box, key, y, x, num_channels, pixel);
    return;
  }
  float normal[kMaxChannels];
  DrawNormalPixel(key, y, x, draw.image_width, normal);
  for (int c = 0; c < num_channels; ++c) pixel[c] = normal[c];
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_RANDOM_ERASING_H_
