// The pixelwise ops' rows as classes, for use in templates.

#ifndef DATASETD_CUDA_KERNELS_OPS_OP_ROWS_H_
#define DATASETD_CUDA_KERNELS_OPS_OP_ROWS_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"

namespace datasetd {

#define DATASETD_ROW(Name)                                                   \
  struct Name##Row {                                                         \
    using Draw = Name##Draw;                                                 \
    static constexpr bool kHasAnyChannels = false;                           \
    static DATASETD_HOST_DEVICE void Apply(const Draw& draw, const uint8_t*, \
                                           const DrawKey&, int, int,         \
                                           int num_channels, float* pixel) { \
      Apply##Name(draw, num_channels, pixel);                                \
    }                                                                        \
  };
DATASETD_POINT_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name)                                                   \
  struct Name##Row {                                                         \
    using Draw = Name##Draw;                                                 \
    static constexpr bool kHasAnyChannels = true;                            \
    static DATASETD_HOST_DEVICE void Apply(const Draw& draw, const uint8_t*, \
                                           const DrawKey& key, int y, int x, \
                                           int num_channels, float* pixel) { \
      Apply##Name(draw, key, y, x, num_channels, pixel);                     \
    }                                                                        \
  };
DATASETD_COORDINATE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name)                                                   \
  struct Name##Row {                                                         \
    using Draw = Name##Draw;                                                 \
    static constexpr bool kHasAnyChannels = false;                           \
    using Statistic = Name##Statistic;                                       \
    using Partial = Name##Partial;                                           \
    static DATASETD_HOST_DEVICE void Apply(const Draw& draw,                 \
                                           const uint8_t* statistic,         \
                                           const DrawKey&, int, int,         \
                                           int num_channels, float* pixel) { \
      Apply##Name(draw, reinterpret_cast<const Statistic*>(statistic),       \
                  num_channels, pixel);                                      \
    }                                                                        \
    static DATASETD_HOST_DEVICE void InitPartial(Statistic* partial) {       \
      Init##Name(partial);                                                   \
    }                                                                        \
    /* For ranks without partial sums of their own. */                       \
    template <typename NoStatistic>                                          \
    static DATASETD_HOST_DEVICE void InitPartial(NoStatistic*) {}            \
    template <typename Atomics>                                              \
    static DATASETD_HOST_DEVICE void Accumulate(const Draw& draw,            \
                                                int num_channels,            \
                                                const float* pixel,          \
                                                Partial* partial,            \
                                                Statistic* statistic) {      \
      Accumulate##Name<Atomics>(draw, num_channels, pixel, partial,          \
                                statistic);                                  \
    }                                                                        \
  };
DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW

// True for the rows of DATASETD_JITTER_OPS.
template <typename Row>
inline constexpr bool kIsJitter = false;
#define DATASETD_ROW(Name) \
  template <>              \
  inline constexpr bool kIsJitter<Name##Row> = true;
DATASETD_JITTER_OPS(DATASETD_ROW)
#undef DATASETD_ROW

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_OP_ROWS_H_
