// Resize, ResizedCrop, RandomResizedCrop: computes the window of the image that
// becomes the output. For sampling see ../axis_taps.h.

#ifndef DATASETD_CUDA_KERNELS_OPS_RESIZE_H_
#define DATASETD_CUDA_KERNELS_OPS_RESIZE_H_

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct ResizeParams {
  InterpolationMode interpolation;
  bool antialias;  // for kBilinear and kBicubic
  bool is_random;
  // If above 0, values are clamped to 0..clamp: for bicubic on uint8 images.
  float clamp;
  // The window if it is not random. Inside the image.
  int32_t top, left, height, width;
  // For random windows: fraction of the image's area; ratio of width to height
  // and its natural logarithm, which is drawn uniformly.
  float scale[2];
  double ratio[2];
  double log_ratio[2];
};

struct ResizeDraw {
  int32_t top, left, height, width;
};

static_assert(std::is_trivially_copyable_v<ResizeParams>);

inline bool DrawsBySize(const ResizeParams& params) { return params.is_random; }

template <typename Visit>
void VisitDrawn(const ResizeDraw& draw, const Step& step, const DrawKey&,
                const Visit& visit) {
  visit("top", draw.top);
  visit("left", draw.left);
  visit("height", draw.height);
  visit("width", draw.width);
  visit("size", step.out_height, step.out_width);
}

// Returns the window for an image of height x width. Random windows are drawn
// as in torchvision: ten tries, draws 1..10, then a fixed centred one.
DATASETD_HOST_DEVICE inline ResizeDraw DrawResize(const ResizeParams& params,
                                                  const DrawKey& key,
                                                  int height, int width) {
  if (!params.is_random) {
    return {params.top, params.left, params.height, params.width};
  }
  const double area = static_cast<double>(height) * static_cast<double>(width);
  DATASETD_NO_UNROLL
  for (uint32_t attempt = 0; attempt < 10; ++attempt) {
    const Words4 words = DrawWords(key, 1 + attempt);
    const double target =
        area * static_cast<double>(UniformBetween(
                   words.word[0], params.scale[0], params.scale[1]));
    const double ratio =
        Exp(params.log_ratio[0] +
            (params.log_ratio[1] - params.log_ratio[0]) *
                static_cast<double>(UniformFloat(words.word[1])));
    const double w = RoundHalfEven(Sqrt(target * ratio));
    const double h = RoundHalfEven(Sqrt(Quotient(target, ratio)));
    if (!(w >= 1.0 && w <= width && h >= 1.0 && h <= height)) continue;
    ResizeDraw draw;
    draw.height = static_cast<int32_t>(h);
    draw.width = static_cast<int32_t>(w);
    draw.top = static_cast<int32_t>(UniformInt(
        words.word[2], static_cast<uint32_t>(height - draw.height + 1)));
    draw.left = static_cast<int32_t>(UniformInt(
        words.word[3], static_cast<uint32_t>(width - draw.width + 1)));
    return draw;
  }
  ResizeDraw draw = {0, 0, height, width};
  const double image_ratio =
      Quotient(static_cast<double>(width), static_cast<double>(height));
  if (image_ratio < params.ratio[0]) {
    draw.height =
        static_cast<int32_t>(RoundHalfEven(Quotient(width, params.ratio[0])));
  } else if (image_ratio > params.ratio[1]) {
    draw.width = static_cast<int32_t>(RoundHalfEven(height * params.ratio[1]));
  }
  if (draw.height < 1) draw.height = 1;
  if (draw.width < 1) draw.width = 1;
  draw.top = (height - draw.height) / 2;
  draw.left = (width - draw.width) / 2;
  return draw;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_RESIZE_H_
