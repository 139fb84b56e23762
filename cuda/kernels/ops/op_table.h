// Table of the ops of a chain, one row per op. A row (Name) stands for
// NameParams, NameDraw, ApplyName and, unless NameDraw is NameParams, DrawName
// of its header, and for StepKind kName. The executor (chain_executor.h),
// explain (server/pipeline/explain.h) and the compiler are generated from it.
//
//   point       ApplyName(draw, num_channels, pixel)
//   coordinate  ApplyName(draw, key, y, x, num_channels, pixel)
//   statistic   ApplyName(draw, statistic, num_channels, pixel), after all
//               pixels went through AccumulateName and FinishName
//   warp        NameDraw begins with the matrix that leads from (x, y, 1) to
//               the source, of two rows (affine) or three (projective). x and y
//               are relative to the output's centre; the source has pixel
//               centres at integers. NameParams is a WarpParams
//   choice      ChooseName(params, key, height, width, drawn) draws the step to
//               be another op (draw_step.h)
//
// A header may also have:
//
//   VisitDrawn                  tells explain what was drawn, by the names of
//                               torchvision's functional form; also with the
//                               step and its key
//   DrawsBySize                 true if the draw depends on the image's size
//   kIsBlend                    true if a value that is made comes of several,
//                               so that value ops that follow may be folded
//   OperationsPerElement,       the cost, unless it is little
//   kOperationsPerElement
//   NameOf                      its name, if that is not the row's
//   VisitChosen                 of a choice: what VisitDrawn of the chosen op
//                               does not know
//   MayBeginPass, SharesPass    of a choice: false if no op that it draws needs
//                               a pass of its own; true if an earlier step may
//                               begin the same one instead

#ifndef DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_
#define DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/adjust_brightness.h"
#include "cuda/kernels/ops/adjust_contrast.h"
#include "cuda/kernels/ops/adjust_hue.h"
#include "cuda/kernels/ops/adjust_saturation.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/affine.h"
#include "cuda/kernels/ops/autocontrast.h"
#include "cuda/kernels/ops/cutout.h"
#include "cuda/kernels/ops/equalize.h"
#include "cuda/kernels/ops/erase.h"
#include "cuda/kernels/ops/gaussian_blur.h"
#include "cuda/kernels/ops/gaussian_noise.h"
#include "cuda/kernels/ops/grayscale.h"
#include "cuda/kernels/ops/invert.h"
#include "cuda/kernels/ops/perspective.h"
#include "cuda/kernels/ops/posterize.h"
#include "cuda/kernels/ops/random_erasing.h"
#include "cuda/kernels/ops/resize.h"
#include "cuda/kernels/ops/sequence.h"
#include "cuda/kernels/ops/solarize.h"
#include "cuda/kernels/ops/warp.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

#define DATASETD_POINT_OPS(ROW) \
  ROW(AdjustBrightness)         \
  ROW(AdjustHue)                \
  ROW(AdjustSaturation)         \
  ROW(Grayscale)                \
  ROW(Invert)                   \
  ROW(Posterize)                \
  ROW(Solarize)

// The ops of ColorJitter and what usually follows it, which are applied so
// often that a CUDA thread has code for all its lanes.
#define DATASETD_JITTER_OPS(ROW) \
  ROW(AdjustBrightness)          \
  ROW(AdjustContrast)            \
  ROW(AdjustHue)                 \
  ROW(AdjustSaturation)          \
  ROW(Grayscale)

#define DATASETD_COORDINATE_OPS(ROW) \
  ROW(Cutout)                        \
  ROW(Erase)                         \
  ROW(GaussianNoise)                 \
  ROW(RandomErasing)

#define DATASETD_STATISTIC_OPS(ROW) \
  ROW(AdjustContrast)               \
  ROW(Autocontrast)                 \
  ROW(Equalize)

#define DATASETD_WARP_OPS(ROW) \
  ROW(Affine)                  \
  ROW(Perspective)

// Ops that the executor handles individually.
#define DATASETD_IMAGE_OPS(ROW) \
  ROW(AdjustSharpness)          \
  ROW(GaussianBlur)             \
  ROW(Resize)

// Ops of fields that are not images (chain/sequence_executor.h).
#define DATASETD_SEQUENCE_OPS(ROW) \
  ROW(AddNoise)                    \
  ROW(AmplitudeToDB)               \
  ROW(FrequencyMasking)            \
  ROW(Gain)                        \
  ROW(MelSpectrogram)              \
  ROW(NormalizeSequence)           \
  ROW(PolarityInversion)           \
  ROW(Shift)                       \
  ROW(TimeMasking)                 \
  ROW(Vol)

// All on images.
#define DATASETD_PIXEL_OPS(ROW) \
  DATASETD_POINT_OPS(ROW)       \
  DATASETD_COORDINATE_OPS(ROW)  \
  DATASETD_STATISTIC_OPS(ROW)   \
  DATASETD_WARP_OPS(ROW)        \
  DATASETD_IMAGE_OPS(ROW)

#define DATASETD_OPS(ROW) \
  DATASETD_PIXEL_OPS(ROW) \
  DATASETD_SEQUENCE_OPS(ROW)

// Ops whose steps are drawn to be others.
#define DATASETD_CHOICE_OPS(ROW) \
  ROW(ColorJitter)               \
  ROW(Policy)

namespace datasetd {

enum class StepKind : uint16_t {
  // No effect; makes a field without ops a chain.
  kIdentity = 0,
  kMove,   // Move; drawn: MoveDraw
  kValue,  // ValueOp; drawn: nothing
#define DATASETD_ROW(Name) k##Name,
  DATASETD_CHOICE_OPS(DATASETD_ROW) DATASETD_OPS(DATASETD_ROW)
#undef DATASETD_ROW
};

struct MoveDraw {
  AxisMove axis[2];
};

inline constexpr int kMaxDrawBytes = 96;

// A step as drawn for one sample.
struct StepDraw {
  StepKind kind;
  bool is_applied;
  uint8_t statistic_index;  // of ChainState
  int32_t out_height, out_width;
  alignas(8) uint8_t draw[kMaxDrawBytes];

  template <typename Draw>
  DATASETD_HOST_DEVICE const Draw& As() const {
    static_assert(sizeof(Draw) <= kMaxDrawBytes && alignof(Draw) <= 8);
    return *reinterpret_cast<const Draw*>(draw);
  }
  template <typename Draw>
  DATASETD_HOST_DEVICE Draw& As() {
    static_assert(sizeof(Draw) <= kMaxDrawBytes && alignof(Draw) <= 8);
    return *reinterpret_cast<Draw*>(draw);
  }
};

// Stores `params` in a step; for the compiler.
template <typename Params>
void SetParams(const Params& params, Step* step) {
  static_assert(std::is_trivially_copyable_v<Params>);
  static_assert(sizeof(Params) <= kMaxStepParamsBytes && alignof(Params) <= 8);
  memcpy(step->params, &params, sizeof(params));
}

// Largest size of a statistic, in bytes.
inline constexpr int kMaxStatisticBytes = 3072;
#define DATASETD_ROW(Name)                                      \
  static_assert(sizeof(Name##Statistic) <= kMaxStatisticBytes); \
  static_assert(alignof(Name##Statistic) <= 8);
DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW

template <typename Params>
inline constexpr bool kBlends = false;
template <typename Params>
requires requires { Params::kIsBlend; }
inline constexpr bool kBlends<Params> = Params::kIsBlend;

// True if the step is drawn to be another op.
inline bool IsChoice(StepKind kind) {
  switch (kind) {
#define DATASETD_ROW(Name) case StepKind::k##Name:
    DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    return true;
    default:
      return false;
  }
}

// True if the op's pixels depend on the whole image.
DATASETD_HOST_DEVICE inline bool IsStatistic(StepKind kind) {
  switch (kind) {
#define DATASETD_ROW(Name) case StepKind::k##Name:
    DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    return true;
    default:
      return false;
  }
}

// True if the op's map is projective, not affine.
template <typename WarpDraw>
inline constexpr bool kIsProjective =
    std::extent_v<decltype(WarpDraw::matrix)> == 3;

#define DATASETD_ROW(Name)                                    \
  static_assert(std::is_base_of_v<WarpParams, Name##Params>); \
  static_assert(offsetof(Name##Draw, matrix) == 0);
DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW

// The beginning of all warps' draws; affine maps have no third row.
struct WarpMatrix {
  float row[3][3];
};

DATASETD_HOST_DEVICE inline bool IsProjective(StepKind kind) {
  switch (kind) {
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return kIsProjective<Name##Draw>;
    DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      return false;
  }
}

// True if an output pixel depends only on the input pixel at its position.
DATASETD_HOST_DEVICE inline bool IsPixelwise(StepKind kind) {
  switch (kind) {
    case StepKind::kIdentity:
    case StepKind::kValue:
#define DATASETD_ROW(Name) case StepKind::k##Name:
      DATASETD_POINT_OPS(DATASETD_ROW)
      DATASETD_COORDINATE_OPS(DATASETD_ROW)
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      return true;
    default:
      return false;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_
