// Counter-based random numbers: a pure function of seed and position, with the
// same bits on host and device.
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy
// as 1, 2, 3", SC 2011. Checked against the paper's known answers.

#ifndef DATASETD_CUDA_KERNELS_MATH_RANDOM_H_
#define DATASETD_CUDA_KERNELS_MATH_RANDOM_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

struct Words4 {
  uint32_t word[4];
};

DATASETD_HOST_DEVICE inline Words4 Philox4x32(Words4 counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Returns the four words of block `draw` of an op on one sample in one epoch.
// REQUIRES: epochs and sample indices are below 2^32.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE Words4 Draw(uint64_t seed,
                                                           uint32_t draw,
                                                           uint32_t op_index,
                                                           uint32_t epoch,
                                                           uint32_t sample) {
  return Philox4x32({{draw, op_index, epoch, sample}}, seed);
}

// Op indices >= kReservedOpIndex do not belong to ops of a pipeline.
inline constexpr uint32_t kReservedOpIndex = 0xFFFF0000u;
inline constexpr uint32_t kShuffleOpIndex = 0xFFFF0001u;
// Of a mixture's parts in an epoch; and of part 0's samples in a pass, those of
// the next parts follow.
inline constexpr uint32_t kMixtureOpIndex = 0xFFFF0002u;
inline constexpr uint32_t kMixturePartOpIndex = 0xFFFF0100u;
// Of the order of documents.
inline constexpr uint32_t kDocumentOpIndex = 0xFFFF0007u;
// Of the crops of sequences in view 0; those of the next views follow.
inline constexpr uint32_t kCropOpIndex = 0xFFFF0200u;

// Returns a multiple of 2^-24 in [0, 1).
DATASETD_HOST_DEVICE inline float UniformFloat(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// Returns an integer in [0, bound). Deviates from uniform by less than bound /
// 2^32.
DATASETD_HOST_DEVICE inline uint32_t UniformInt(uint32_t word, uint32_t bound) {
  return static_cast<uint32_t>((uint64_t{word} * bound) >> 32);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_RANDOM_H_
