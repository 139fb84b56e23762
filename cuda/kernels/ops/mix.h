// MixUp and CutMix of a batch's row with its partner, the previous row (for the
// first row, the last one). Only rows that hold samples count.
//
//   MixUp   partner * (1 - lambda) + own * lambda, in float32, both products
//           rounded; lambda ~ Beta(alpha, alpha)
//   CutMix  pastes a box of the partner into the own image; its sides are the
//           image's times sqrt(1 - lambda), clipped to the image, and lambda
//           becomes the remaining fraction of the image
//
// Labels are mixed like MixUp, as one-hot float32.
//
// Seeded by (seed, op index, epoch, batch), with the batch in the counter word
// of the sample. Words 0 and 1 of draw 1 give the box's centre, x and y; draws
// from 2 on give lambda. With per_sample, row r adds kMixDraws * r to the draw;
// rows 2^25 apart draw the same numbers.

#ifndef DATASETD_CUDA_KERNELS_OPS_MIX_H_
#define DATASETD_CUDA_KERNELS_OPS_MIX_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/beta.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr uint32_t kMixDraws = 128;
inline constexpr uint32_t kBoxDraw = 1;
inline constexpr uint32_t kLambdaDraw = 2;
static_assert(kLambdaDraw + kNumBetaDraws <= kMixDraws);

struct MixDraw {
  double lambda;  // for CutMix: 1 - the box's fraction of the image
  float own_weight;
  float partner_weight;
  // Box in which the partner is used, excluding bottom and right. For MixUp the
  // whole image.
  int32_t top, left, bottom, right;
};

DATASETD_HOST_DEVICE inline int32_t PartnerRow(const BatchTask& batch,
                                               int32_t row) {
  return row == 0 ? batch.num_samples - 1 : row - 1;
}

// False if the box is empty.
DATASETD_HOST_DEVICE inline bool HasPartner(const MixDraw& mix) {
  return mix.top < mix.bottom && mix.left < mix.right;
}

namespace mix_internal {

// Computes center -+ half, clipped to 0..size.
DATASETD_HOST_DEVICE inline void CutAxis(uint32_t word, double half_part,
                                         int32_t size, int32_t* begin,
                                         int32_t* end) {
  const int32_t center =
      static_cast<int32_t>(UniformInt(word, static_cast<uint32_t>(size)));
  const int32_t half =
      static_cast<int32_t>(half_part * static_cast<double>(size));
  *begin = center < half ? 0 : center - half;
  *end = size - center < half ? size : center + half;
}

}  // namespace mix_internal

// Draws the mix of row `row`, whose image is height x width.
DATASETD_HOST_DEVICE inline MixDraw DrawMix(const MixProgram& program,
                                            uint64_t seed,
                                            const BatchTask& batch, int32_t row,
                                            int32_t height, int32_t width) {
  const DrawKey key = {seed, batch.epoch, int64_t{batch.batch_index},
                       program.op_index};
  const uint32_t first =
      program.per_sample ? kMixDraws * static_cast<uint32_t>(row) : 0;
  MixDraw mix;
  mix.lambda = DrawBeta(key, first + kLambdaDraw, program.alpha);
  mix.top = mix.left = 0;
  mix.bottom = height;
  mix.right = width;
  if (program.kind == MixKind::kCutMix) {
    const Words4 words = DrawWords(key, first + kBoxDraw);
    const double half_part = 0.5 * Sqrt(1.0 - mix.lambda);
    mix_internal::CutAxis(words.word[0], half_part, width, &mix.left,
                          &mix.right);
    mix_internal::CutAxis(words.word[1], half_part, height, &mix.top,
                          &mix.bottom);
    const int64_t area = int64_t{mix.bottom - mix.top} * (mix.right - mix.left);
    mix.lambda = 1.0 - Quotient(static_cast<double>(area),
                                static_cast<double>(int64_t{height} * width));
  }
  mix.own_weight = static_cast<float>(mix.lambda);
  mix.partner_weight = static_cast<float>(1.0 - mix.lambda);
  return mix;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_MIX_H_
