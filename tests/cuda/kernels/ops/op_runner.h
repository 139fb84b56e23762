// Runs one op on an image as a chain would, in plain loops.

#ifndef DATASETD_TESTS_CUDA_KERNELS_OPS_OP_RUNNER_H_
#define DATASETD_TESTS_CUDA_KERNELS_OPS_OP_RUNNER_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/ops/op_image.h"

namespace datasetd {

// Calls function(y, x, pixel) for every pixel, and stores what it leaves.
template <typename Function>
OpImage ForEachPixel(OpImage image, Function function) {
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const int64_t at = int64_t{y} * image.width + x;
      float pixel[kMaxChannels] = {};
      for (int c = 0; c < image.num_channels; ++c) {
        pixel[c] = image.values[c * image.plane_size() + at];
      }
      function(y, x, pixel);
      for (int c = 0; c < image.num_channels; ++c) {
        image.values[c * image.plane_size() + at] = pixel[c];
      }
    }
  }
  return image;
}

template <typename Draw>
OpImage RunPointOp(const OpImage& image, const Draw& draw,
                   void (*apply)(const Draw&, int, float*)) {
  return ForEachPixel(image, [&](int, int, float* pixel) {
    apply(draw, image.num_channels, pixel);
  });
}

template <typename Draw>
OpImage RunCoordinateOp(const OpImage& image, const Draw& draw,
                        const DrawKey& key,
                        void (*apply)(const Draw&, const DrawKey&, int, int,
                                      int, float*)) {
  return ForEachPixel(image, [&](int y, int x, float* pixel) {
    apply(draw, key, y, x, image.num_channels, pixel);
  });
}

template <typename Draw>
OpImage RunWindowOp(const OpImage& image, const Draw& draw,
                    float (*apply)(const Draw&, const float*, int, int, int,
                                   int)) {
  OpImage result = image;
  for (int c = 0; c < image.num_channels; ++c) {
    const float* plane = image.values.data() + c * image.plane_size();
    float* to = result.values.data() + c * image.plane_size();
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        *to++ = apply(draw, plane, image.height, image.width, y, x);
      }
    }
  }
  return result;
}

// The functions of a statistic op, `num_ranks` ranks taking pixels in turn.
template <typename Draw, typename Statistic, typename Partial>
struct StatisticOp {
  void (*init)(Statistic*);
  void (*accumulate)(const Draw&, int, const float*, Partial*, Statistic*);
  void (*merge)(const Partial&, Statistic*);
  void (*finish)(int, int, int, Statistic*, Draw*);
  void (*apply)(const Draw&, const Statistic*, int, float*);

  OpImage Run(const OpImage& image, Draw draw, int num_ranks) const {
    Statistic statistic;
    init(&statistic);
    // The last rank first: the order must not show.
    for (int rank = num_ranks - 1; rank >= 0; --rank) {
      Partial partial;
      if constexpr (std::is_same_v<Partial, Statistic>) init(&partial);
      for (int64_t at = rank; at < image.plane_size(); at += num_ranks) {
        float pixel[kMaxChannels] = {};
        for (int c = 0; c < image.num_channels; ++c) {
          pixel[c] = image.values[c * image.plane_size() + at];
        }
        accumulate(draw, image.num_channels, pixel, &partial, &statistic);
        if constexpr (requires { partial.Settle(); }) partial.Settle();
      }
      merge(partial, &statistic);
    }
    finish(image.num_channels, image.height, image.width, &statistic, &draw);
    return ForEachPixel(image, [&](int, int, float* pixel) {
      apply(draw, &statistic, image.num_channels, pixel);
    });
  }
};

}  // namespace datasetd

#endif  // DATASETD_TESTS_CUDA_KERNELS_OPS_OP_RUNNER_H_
