// Key of an op's random draws: see docs/randomness.md.

#ifndef DATASETD_CUDA_KERNELS_OPS_DRAW_KEY_H_
#define DATASETD_CUDA_KERNELS_OPS_DRAW_KEY_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"

namespace datasetd {

// Epochs and sample indices are below 2^32.
struct DrawKey {
  uint64_t seed;
  uint64_t epoch;
  int64_t sample;
  uint32_t op_index;
};

// Draw 0 decides the gate ("with probability p"). An op's parameters use draws
// from 1 on.
inline constexpr uint32_t kGateDraw = 0;

DATASETD_HOST_DEVICE inline Words4 DrawWords(const DrawKey& key,
                                             uint32_t draw) {
  return Draw(key.seed, draw, key.op_index, static_cast<uint32_t>(key.epoch),
              static_cast<uint32_t>(key.sample));
}

// Returns a uniform number in [low, high]; `high` occurs only by rounding.
// REQUIRES: both are finite, low <= high.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE float UniformBetween(
    uint32_t word, float low, float high) {
  const double range = static_cast<double>(high) - static_cast<double>(low);
  return static_cast<float>(static_cast<double>(low) +
                            range * static_cast<double>(UniformFloat(word)));
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_DRAW_KEY_H_
