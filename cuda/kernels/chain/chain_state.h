// State shared by the ranks of a team while they run one sample through a
// chain.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_STATE_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_STATE_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/ops/resize.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// Two, because a statistic op accumulates while the table of the one before it
// is still read.
inline constexpr int kNumStatistics = 2;

// x * factor + bias, per channel.
struct ValueScale {
  float factor[kMaxChannels];
  float bias[kMaxChannels];
};

inline constexpr uint8_t kNoStep = 0xFF;

// A pass of one sample (chain_pass.h).
struct DrawnPass {
  // Size of the image that the pass writes.
  int32_t height, width, channels;
  // Elements of the scratch memory that it writes, if it does.
  int64_t max_elements;
  PassSource source;
  bool has_fill;  // a move of the pass pads with a constant
  uint8_t source_step;
  // The applied moves of [first_move, end_move), then the applied pixelwise
  // steps of [first_op, end_op). An end of 0 means none.
  uint8_t first_move, end_move;
  uint8_t first_op, end_op;
  // The value ops from here on are one multiply-add; end_op: none are.
  uint8_t folded_op;
  // The step that begins the next pass, if it needs a statistic of this one's
  // image; else kNoStep.
  uint8_t statistic_step;
};

// Input image of a pass: a resident sample, or a scratch image in planar
// float32. Strides are in elements.
struct ChainImage {
  const uint8_t* data;
  Dtype dtype;
  int32_t height, width, channels;
  int64_t channel_stride;
  int32_t row_stride, pixel_stride;
  bool is_scratch;
};

// A team's scratch memory.
struct ChainMemory {
  float* image[2];
  float* rows;
  float* line;
  float* weights;
  int32_t* indices;
  int32_t* map;
  float* partner;  // of fields with a mix
};

// The resize of a pass; by axis y, x.
struct ResizeState {
  ResizeDraw window;
  AxisResample axis[2];
  int32_t size[2];  // of the output
  int32_t num_taps[2];
  float clamp;
  float scale_y;
  int32_t row_capacity;
  bool is_columns_first;
};

// One of `count` shares of an image's rows, each of as many.
struct Strip {
  int32_t index = 0;
  int32_t count = 1;
};

// The shared memory of a block: what is the same for all ranks, so that it
// takes no registers. One rank writes it.
struct ChainState {
  ChainMemory memory;
  DrawKey key;         // of the sample
  ChainImage image;    // that the pass reads
  ResizeState resize;  // of the pass
  StepDraw drawn[kMaxSteps];
  int32_t num_passes;
  DrawnPass passes[kMaxPasses];
  union {
    alignas(8) uint8_t statistic[kNumStatistics][kMaxStatisticBytes];
    Step sized[kMaxSteps];  // of a ragged field, while the sample is drawn
  };
  uint32_t rows_from, rows_to;  // of a band of a resize
  ValueScale scale;             // of a pass
  MixDraw mix;                  // of the row
  // Of a team without vectors.
  Strip strip;
  int32_t strip_from, strip_to;  // rows of the output that it makes
};

// Loads element `index` of an image of kDtype as float32.
template <Dtype kDtype>
DATASETD_HOST_DEVICE inline float LoadElement(const uint8_t* data,
                                              int64_t index) {
  if constexpr (kDtype == Dtype::kUint8) {
    return static_cast<float>(LoadAs<uint8_t>(data, index));
  } else if constexpr (kDtype == Dtype::kFloat16) {
    return Float16ToFloat(LoadAs<uint16_t>(data, index));
  } else if constexpr (kDtype == Dtype::kBfloat16) {
    return FloatFromBits(uint32_t{LoadAs<uint16_t>(data, index)} << 16);
  } else {
    // Not LoadAs, because the same kernel writes scratch memory.
    return reinterpret_cast<const float*>(data)[index];
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_STATE_H_
