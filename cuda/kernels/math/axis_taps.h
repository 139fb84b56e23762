// Resampling along one axis: the input coordinates that contribute to an output
// coordinate, and their weights.
//
// Pixel centres are at integers plus 1/2, as in ATen (align_corners=False).
// With antialias the filter grows with the scale, and taps beyond the edge are
// dropped and the rest normalised; without, taps are clamped to the edge.
// Nearest uses float32, as ATen does.

#ifndef DATASETD_CUDA_KERNELS_MATH_AXIS_TAPS_H_
#define DATASETD_CUDA_KERNELS_MATH_AXIS_TAPS_H_

#include <cmath>
#include <cstdint>

#include "base/checked_math.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/interpolation.h"

namespace datasetd {

// Maps [0, in_size) to [0, out_size). Both sizes are within 1..kMaxExtent.
struct AxisResample {
  int32_t in_size;
  int32_t out_size;
  InterpolationMode interpolation;
  bool antialias;

  bool operator==(const AxisResample&) const = default;
};

DATASETD_HOST_DEVICE inline bool IsAntialiased(const AxisResample& axis) {
  return axis.antialias &&
         (axis.interpolation == InterpolationMode::kBilinear ||
          axis.interpolation == InterpolationMode::kBicubic);
}

// Returns half the filter's width in input coordinates.
DATASETD_HOST_DEVICE inline double FilterSupport(const AxisResample& axis) {
  const double scale =
      Quotient(static_cast<double>(axis.in_size), axis.out_size);
  const double reach =
      axis.interpolation == InterpolationMode::kBicubic ? 2.0 : 1.0;
  return scale > 1.0 ? reach * scale : reach;
}

// Returns the number of taps per output coordinate; unused ones have weight 0.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE int32_t
NumTaps(const AxisResample& axis) {
  if (IsAntialiased(axis)) {
    const double width = 2.0 * FilterSupport(axis);
    // Compare before the cast: the width may exceed the range of int32_t.
    if (width >= axis.in_size) return axis.in_size;
    const int32_t whole = static_cast<int32_t>(width);
    return whole < width ? whole + 1 : whole;
  }
  switch (axis.interpolation) {
    case InterpolationMode::kBilinear:
      return 2;
    case InterpolationMode::kBicubic:
      return 4;
    default:
      return 1;
  }
}

// Keys' cubic; a is -1/2 with antialias and -3/4 without, as in ATen.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double CubicWeight(double x,
                                                                  double a) {
  x = fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

DATASETD_HOST_DEVICE inline double FilterWeight(InterpolationMode interpolation,
                                                double x) {
  if (interpolation == InterpolationMode::kBicubic) return CubicWeight(x, -0.5);
  const double weight = 1.0 - fabs(x);
  return weight > 0.0 ? weight : 0.0;
}

// In two steps, of which compilers make no branches.
DATASETD_HOST_DEVICE inline int32_t ClampIndex(int32_t i, int32_t size) {
  i = i < 0 ? 0 : i;
  return i < size ? i : size - 1;
}

// Computes taps; holds the values common to all output coordinates.
class AxisTapMaker {
 public:
  DATASETD_HOST_DEVICE explicit AxisTapMaker(const AxisResample& axis)
      : axis_(axis),
        num_taps_(NumTaps(axis)),
        scale_(Quotient(static_cast<double>(axis.in_size), axis.out_size)),
        support_(FilterSupport(axis)),
        unit_(scale_ > 1.0 ? Quotient(1.0, scale_) : 1.0) {}

  // Computes the NumTaps(axis) taps of `out_index`. Tap t goes to index[t *
  // stride] and weight[t * stride].
  DATASETD_HOST_DEVICE void Make(int32_t out_index, int64_t stride,
                                 int32_t* index, float* weight) const {
    const double center = scale_ * (out_index + 0.5);
    if (axis_.interpolation == InterpolationMode::kNearest ||
        axis_.interpolation == InterpolationMode::kNearestExact) {
      MakeNearest(out_index, index, weight);
    } else if (IsAntialiased(axis_)) {
      MakeAntialiased(center, stride, index, weight);
    } else if (axis_.interpolation == InterpolationMode::kBilinear) {
      MakeBilinear(center, stride, index, weight);
    } else {
      MakeBicubic(center, stride, index, weight);
    }
  }

 private:
  DATASETD_HOST_DEVICE void MakeNearest(int32_t out_index, int32_t* index,
                                        float* weight) const {
    const float scale =
        static_cast<float>(axis_.in_size) / static_cast<float>(axis_.out_size);
    const float at = axis_.interpolation == InterpolationMode::kNearest
                         ? static_cast<float>(out_index)
                         : static_cast<float>(out_index) + 0.5f;
    index[0] = ClampIndex(SaturatingCast<int32_t>(at * scale), axis_.in_size);
    weight[0] = 1.0f;
  }

  DATASETD_HOST_DEVICE void MakeAntialiased(double center, int64_t stride,
                                            int32_t* index,
                                            float* weight) const {
    const double low = center - support_ + 0.5;
    const int32_t first = low > 0.0 ? static_cast<int32_t>(low) : 0;
    const double high = center + support_ + 0.5;
    const int32_t end =
        high < axis_.in_size ? static_cast<int32_t>(high) : axis_.in_size;
    double sum = 0.0;
    DATASETD_NO_UNROLL
    for (int32_t i = first; i < end; ++i) sum = sum + Weight(i, center);
    const double norm = Quotient(1.0, sum);
    DATASETD_NO_UNROLL
    for (int32_t t = 0; t < num_taps_; ++t) {
      const int32_t i = first + t;
      index[t * stride] = i < end ? i : end - 1;
      weight[t * stride] =
          i < end ? static_cast<float>(Weight(i, center) * norm) : 0.0f;
    }
  }

  DATASETD_HOST_DEVICE double Weight(int32_t i, double center) const {
    return FilterWeight(axis_.interpolation, (i - center + 0.5) * unit_);
  }

  DATASETD_HOST_DEVICE void MakeBilinear(double center, int64_t stride,
                                         int32_t* index, float* weight) const {
    double at = center - 0.5;
    if (at < 0.0) at = 0.0;
    const int32_t first = ClampIndex(static_cast<int32_t>(at), axis_.in_size);
    const double part = at - first;
    index[0] = first;
    index[stride] = ClampIndex(first + 1, axis_.in_size);
    weight[0] = static_cast<float>(1.0 - part);
    weight[stride] = static_cast<float>(part);
  }

  DATASETD_HOST_DEVICE void MakeBicubic(double center, int64_t stride,
                                        int32_t* index, float* weight) const {
    const double at = center - 0.5;
    const double floor = Floor(at);
    const double part = at - floor;
    const int32_t first = static_cast<int32_t>(floor);
    DATASETD_NO_UNROLL
    for (int32_t t = 0; t < 4; ++t) {
      index[t * stride] = ClampIndex(first - 1 + t, axis_.in_size);
      weight[t * stride] =
          static_cast<float>(CubicWeight(part + 1.0 - t, -0.75));
    }
  }

  AxisResample axis_;
  int32_t num_taps_;
  double scale_;
  double support_;  // half the filter's width in input coordinates
  double unit_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_AXIS_TAPS_H_
