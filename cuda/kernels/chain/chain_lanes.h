// Loads, pixelwise ops and stores of a chain, on pixels of one row. A lane is a
// pixel. A CUDA thread has four lanes, in registers; the host has up to a row
// of them, so that loops over lanes become vector instructions.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_LANES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_LANES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_LANES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_LANES_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/op_rows.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Lanes 0 .. count of row y, which are the columns X(k). Lanes from `count` to
// the end of the last group are unspecified.
template <typename Team>
struct Lanes {
  static constexpr int kLanes = Team::kLanes;

  DATASETD_HOST_DEVICE int32_t X(int k) const {
    return first_x + (Team::kHasVectors ? k : k * step);
  }

  int32_t y, first_x, count;
  // Columns from lane to lane: 1 on the host. A CUDA thread takes neighbours
  // where it loads vectors, else a column of each quarter of the row, so that
  // neighbours are loaded by neighbouring threads.
  int32_t step;
  int32_t channels;
  // On the host each vector is one line of the cache.
  alignas(Team::kHasVectors ? 64 : 4) float pixel[kMaxChannels][kLanes];
};

// Calls visit(k) for each group of lanes k .. k + kGroup up to `count`, rounded
// up; loops over a group become vector instructions.
template <typename Team, typename Visit>
DATASETD_HOST_DEVICE inline void VisitGroups(int count, const Visit& visit) {
  if constexpr (!Team::kHasVectors) {
    visit(0);
  } else {
    for (int k = 0; k < count; k += Team::kGroup) visit(k);
  }
}

// Calls visit(k) for lanes begin .. end.
template <typename Team, typename Visit>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitLanes(int begin, int end,
                                                           const Visit& visit) {
  if constexpr (Team::kHasVectors) {
    for (int k = begin; k < end; ++k) visit(k);
  } else {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      if (k >= begin && k < end) visit(k);
    }
  }
}

// Calls visit(n, c) for channels c .. c + n, n a std::integral_constant: for
// three at once, which share what they look up, or one by one.
template <typename Visit>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitChannels(
    int32_t channels, const Visit& visit) {
  if (channels == 3) {
    visit(std::integral_constant<int, 3>(), 0);
    return;
  }
  for (int32_t c = 0; c < channels; ++c) {
    visit(std::integral_constant<int, 1>(), c);
  }
}

// Splits interleaved bytes of three channels at `start`, in whole vectors only.
// Returns the number of pixels done.
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline int32_t LoadRgb(const uint8_t* data, int64_t start,
                                        int32_t count, float* to0, float* to1,
                                        float* to2) {
  int32_t first = 0;
  if constexpr (kDtype == Dtype::kUint8 && Team::Vector::kCanPick) {
    using Vector = typename Team::Vector;
    for (; first + Vector::kFloats <= count; first += Vector::kFloats) {
      Vector::SplitRgb(data + start + 3 * int64_t{first}, to0 + first,
                       to1 + first, to2 + first);
    }
  }
  return first;
}

// Applies Row::Apply to each lane. kChannels is the image's number of channels.
template <typename Row, int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN DATASETD_FORCE_INLINE void ApplyRowTo(
    const typename Row::Draw& draw, const uint8_t* statistic,
    const DrawKey& key, Lanes<Team>* lanes) {
  // Grayscale may expand one channel to three.
  constexpr int kOutChannels =
      kChannels == 1 && std::is_same_v<Row, GrayscaleRow> ? 3 : kChannels;
  // A local copy, which stores to lanes cannot alias.
  std::conditional_t<(Team::kHasVectors), const typename Row::Draw,
                     const typename Row::Draw&>
      local = draw;
  VisitGroups<Team>(lanes->count, [&](int first) {
    DATASETD_UNROLL
    for (int k = first; k < first + Team::kGroup; ++k) {
      float pixel[kMaxChannels] = {};
      for (int c = 0; c < kChannels; ++c) pixel[c] = lanes->pixel[c][k];
      Row::Apply(local, statistic, key, lanes->y, lanes->X(k), kChannels,
                 pixel);
      for (int c = 0; c < kOutChannels; ++c) lanes->pixel[c][k] = pixel[c];
    }
  });
}

template <typename Row, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void ApplyRow(
    const typename Row::Draw& draw, const uint8_t* statistic,
    const DrawKey& key, Lanes<Team>* lanes) {
  if constexpr (Row::kHasAnyChannels) {
    if (lanes->channels == 2) {
      ApplyRowTo<Row, 2>(draw, statistic, key, lanes);
      return;
    }
    if (lanes->channels == 4) {
      ApplyRowTo<Row, 4>(draw, statistic, key, lanes);
      return;
    }
  }
  // Three channels went through a jitter op before single pixels (ApplyStep).
  if (lanes->channels == 1 || (Team::kLanes == 1 && kIsJitter<Row>)) {
    ApplyRowTo<Row, 1>(draw, statistic, key, lanes);
  } else {
    ApplyRowTo<Row, 3>(draw, statistic, key, lanes);
  }
}

template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN DATASETD_FORCE_INLINE void ApplyValueOp(
    const ValueOp& op, Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    float* const pixel = lanes->pixel[c];
    const bool is_divide = op.kind == ValueOpKind::kDivide;
    const float mean = is_divide ? 0.0f : op.mean[c];
    const float divisor = is_divide ? op.divisor : op.std[c];
    VisitGroups<Team>(lanes->count, [&](int first) {
      DATASETD_UNROLL
      for (int k = first; k < first + Team::kGroup; ++k) {
        pixel[k] = (pixel[k] - mean) / divisor;
      }
    });
  }
}

template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN DATASETD_FORCE_INLINE void ScaleLanes(
    const ValueScale& scale, Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    float* const pixel = lanes->pixel[c];
    const float factor = scale.factor[c];
    const float bias = scale.bias[c];
    VisitGroups<Team>(lanes->count, [&](int first) {
      DATASETD_UNROLL
      for (int k = first; k < first + Team::kGroup; ++k) {
        pixel[k] = pixel[k] * factor + bias;
      }
    });
  }
}

// Applies a pixelwise step to a block of pixels, or to one pixel.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void ApplyAnyStep(
    const Step& step, const StepDraw& drawn, const ChainState& state,
    Lanes<Team>* lanes) {
  DrawKey key = state.key;
  switch (drawn.kind) {
    case StepKind::kValue:
      ApplyValueOp(ParamsAs<ValueOp>(step), lanes);
      break;
#define DATASETD_ROW(Name)                                                   \
  case StepKind::k##Name:                                                    \
    ApplyRow<Name##Row>(drawn.As<Name##Draw>(),                              \
                        state.statistic[drawn.statistic_index], key, lanes); \
    break;
      DATASETD_POINT_OPS(DATASETD_ROW)
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name)                                            \
  case StepKind::k##Name:                                             \
    key.op_index = step.op_index;                                     \
    ApplyRow<Name##Row>(drawn.As<Name##Draw>(), nullptr, key, lanes); \
    break;
      DATASETD_COORDINATE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      break;
  }
}

// A team of one lane, for ops that are too rare to be compiled for several.
template <typename BlockTeam>
struct PixelTeam : BlockTeam {
  static constexpr int kLanes = 1;
  static constexpr int kGroup = 1;
};

// Returns the lanes of one pixel after a step.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_NOINLINE Lanes<PixelTeam<Team>> ApplyToPixel(
    const Step& step, const StepDraw& drawn, const ChainState& state,
    Lanes<PixelTeam<Team>> pixel) {
  ApplyAnyStep(step, drawn, state, &pixel);
  return pixel;
}

// Applies a step to lane after lane.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void ApplyToEachPixel(
    const Step& step, const StepDraw& drawn, const ChainState& state,
    Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    Lanes<PixelTeam<Team>> pixel = {lanes->y, lanes->X(k),     1,
                                    1,        lanes->channels, {}};
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      pixel.pixel[c][0] = lanes->pixel[c][k];
    }
    pixel = ApplyToPixel<Team>(step, drawn, state, pixel);
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      lanes->pixel[c][k] = pixel.pixel[c][0];
    }
  }
}

// Applies a pixelwise step.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void ApplyStep(
    const Step& step, const StepDraw& drawn, const ChainState& state,
    Lanes<Team>* lanes) {
  if constexpr (Team::kHasVectors) {
    ApplyAnyStep(step, drawn, state, lanes);
  } else {
    switch (lanes->channels == 3 ? drawn.kind : StepKind::kIdentity) {
#define DATASETD_ROW(Name)                                               \
  case StepKind::k##Name:                                                \
    ApplyRowTo<Name##Row, 3>(drawn.As<Name##Draw>(), nullptr, state.key, \
                             lanes);                                     \
    break;
      DATASETD_JITTER_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      default:
        ApplyToEachPixel(step, drawn, state, lanes);
        break;
    }
  }
  // No other op changes the number of channels.
  if (drawn.kind == StepKind::kGrayscale) lanes->channels = step.out_channels;
}

// Adds the lanes to a statistic, of kChannels channels.
template <typename Row, int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN DATASETD_FORCE_INLINE void
AccumulateRowOf(const typename Row::Draw& drawn, const Lanes<Team>& lanes,
                typename Row::Partial* partial,
                typename Row::Statistic* statistic) {
  // A local copy, as in ApplyRowTo.
  std::conditional_t<(Team::kHasVectors), const typename Row::Draw,
                     const typename Row::Draw&>
      draw = drawn;
  const int count = lanes.count;
  const auto load = [&](int k, float* pixel) {
    for (int c = 0; c < kChannels; ++c) pixel[c] = lanes.pixel[c][k];
  };
  typename Row::Partial local = *partial;
  if constexpr (requires(float* pixel) { StatisticTerm(draw, 1, pixel); }) {
    int32_t term[Team::kLanes];
    VisitGroups<Team>(count, [&](int first) {
      DATASETD_UNROLL
      for (int k = first; k < first + Team::kGroup; ++k) {
        float pixel[kChannels];
        load(k, pixel);
        term[k] = StatisticTerm(draw, kChannels, pixel);
      }
    });
    if constexpr (Team::kHasVectors) {
      for (int k = 0; k < count; ++k) local.Add(term[k]);
      local.Settle();
    } else {
      VisitLanes<Team>(0, count, [&](int k) { local.sum += term[k]; });
    }
  } else {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      if (k >= count) break;
      float pixel[kChannels];
      load(k, pixel);
      Row::template Accumulate<typename Team::Atomics>(draw, kChannels, pixel,
                                                       &local, statistic);
    }
  }
  *partial = local;
}

template <typename Row, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void AccumulateRow(
    const typename Row::Draw& draw, const Lanes<Team>& lanes,
    typename Row::Partial* partial, typename Row::Statistic* statistic) {
  if (lanes.channels == 3) {
    AccumulateRowOf<Row, 3>(draw, lanes, partial, statistic);
  } else {
    AccumulateRowOf<Row, 1>(draw, lanes, partial, statistic);
  }
}

// Stores the lanes of one channel at `to`, `stride` elements apart.
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void StoreChannel(const float* pixel, int count,
                                          int stride, uint8_t* to) {
  for (int k = 0; k < count; ++k) {
    StoreAs(to, static_cast<int64_t>(k) * stride, Rounded<kDtype>(pixel[k]));
  }
}

// Stores whole cache lines with non-temporal stores, since a slot exceeds the
// caches. Returns false if that is impossible.
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline bool StreamChannel(const float* pixel, int count,
                                           int stride, uint8_t* to) {
  if constexpr (kDtype == Dtype::kFloat32) {
    using Vector = typename Team::Vector;
    if (stride != 1 || count % 16 != 0 ||
        reinterpret_cast<uintptr_t>(to) % 64 != 0) {
      return false;
    }
    for (int k = 0; k < count; k += Vector::kFloats) {
      Vector::Stream(Vector::Load(pixel + k), reinterpret_cast<float*>(to) + k);
    }
    return true;
  }
  return false;
}

template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void StoreLanes(const Lanes<Team>& lanes,
                                        int64_t channel_stride, int stride,
                                        uint8_t* to) {
  if constexpr (kDtype == Dtype::kUint8) {
    // Converting into a buffer becomes vector code; strided stores do not.
    if (lanes.channels == 3 && stride == 3 && channel_stride == 1) {
      uint8_t bytes[3 * Team::kLanes];
      VisitGroups<Team>(lanes.count, [&](int first) {
        for (int k = first; k < first + Team::kGroup; ++k) {
          for (int c = 0; c < 3; ++c) {
            bytes[3 * k + c] = FloatToUint8(lanes.pixel[c][k]);
          }
        }
      });
      memcpy(to, bytes, static_cast<size_t>(3 * lanes.count));
      return;
    }
  }
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes.channels) continue;
    uint8_t* const plane = to + c * channel_stride * DtypeSizeBytes(kDtype);
    if (StreamChannel<kDtype, Team>(lanes.pixel[c], lanes.count, stride,
                                    plane)) {
      continue;
    }
    if (stride == 1) {
      StoreChannel<kDtype, Team>(lanes.pixel[c], lanes.count, 1, plane);
    } else {
      StoreChannel<kDtype, Team>(lanes.pixel[c], lanes.count, stride, plane);
    }
  }
}

// Stores lanes unchanged as planar float32.
template <typename Team>
DATASETD_FLATTEN inline void StoreScratch(const Lanes<Team>& lanes,
                                          int64_t channel_stride, float* to) {
  const int count = lanes.count;
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes.channels) continue;
    float* const plane = to + c * channel_stride;
    for (int k = 0; k < count; ++k) plane[k] = lanes.pixel[c][k];
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_LANES_H_
