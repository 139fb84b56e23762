// Mixes lanes and labels (ops/mix.h).

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_MIX_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_MIX_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_MIX_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_MIX_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// True if any of the lanes uses the partner.
template <typename Team>
DATASETD_HOST_DEVICE inline bool IsMixedIn(const MixDraw& mix,
                                           const Lanes<Team>& lanes) {
  return lanes.y >= mix.top && lanes.y < mix.bottom &&
         lanes.first_x < mix.right && lanes.X(lanes.count - 1) >= mix.left;
}

// Blends the lanes with those of `partner`, planar [C, height, width]. A team
// with vectors stores the unblended lanes there, for the next row.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN DATASETD_FORCE_INLINE void MixLanes(
    MixKind kind, const MixDraw& mix, float* partner, int32_t height,
    int32_t width, Lanes<Team>* lanes) {
  const int64_t plane = static_cast<int64_t>(height) * width;
  float* const start =
      partner + static_cast<int64_t>(lanes->y) * width + lanes->first_x;
  const int count = lanes->count;
  if constexpr (!Team::kHasVectors) {
    if (!IsMixedIn(mix, *lanes)) return;
    VisitLanes<Team>(0, count, [&](int k) {
      const int32_t x = lanes->X(k);
      if (x < mix.left || x >= mix.right) return;
      DATASETD_UNROLL
      for (int c = 0; c < kMaxChannels; ++c) {
        if (c >= lanes->channels) continue;
        float& value = lanes->pixel[c][k];
        const float other = start[c * plane + x - lanes->first_x];
        value = kind == MixKind::kMixUp
                    ? other * mix.partner_weight + value * mix.own_weight
                    : other;
      }
    });
    return;
  }
  int begin = mix.left > lanes->first_x ? mix.left - lanes->first_x : 0;
  const int right = mix.right - lanes->first_x;
  const int end = right < count ? right : count;
  if (!IsMixedIn(mix, *lanes)) begin = end;
  const float own_weight = mix.own_weight;
  const float partner_weight = mix.partner_weight;
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    float* const pixel = lanes->pixel[c];
    float* const other = start + c * plane;
    float own[Team::kLanes];
    for (int k = 0; k < count; ++k) own[k] = pixel[k];
    if (kind == MixKind::kMixUp) {
      for (int k = begin; k < end; ++k) {
        pixel[k] = other[k] * partner_weight + pixel[k] * own_weight;
      }
    } else {
      for (int k = begin; k < end; ++k) pixel[k] = other[k];
    }
    for (int k = 0; k < count; ++k) other[k] = own[k];
  }
}

// Returns the class of sample `sample`.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE int64_t LoadClass(
    const MixtureTable& mixture, const FieldProgram& labels, int64_t sample) {
  return static_cast<int64_t>(CastElementBits(
      SampleData(mixture, labels, sample), labels.in_dtype, Dtype::kInt64, 0));
}

// Writes row `row` of `labels`, mixed with row `partner`. All ranks call it.
template <typename Team>
DATASETD_HOST_DEVICE inline void WriteMixedLabels(
    const Team& team, const MixDraw& mix, const MixtureTable& mixture,
    const FieldProgram& labels, const BatchTask& batch, int32_t row,
    int32_t partner) {
  const int64_t own_class =
      LoadClass<Team>(mixture, labels, batch.indices[row]);
  const int64_t partner_class =
      LoadClass<Team>(mixture, labels, batch.indices[partner]);
  float* const to = reinterpret_cast<float*>(batch.slot + labels.offset_bytes) +
                    static_cast<int64_t>(row) * labels.num_classes;
  DATASETD_NO_UNROLL
  for (int32_t c = team.rank(); c < labels.num_classes; c += team.size()) {
    to[c] = (c == partner_class ? mix.partner_weight : 0.0f) +
            (c == own_class ? mix.own_weight : 0.0f);
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_MIX_H_
