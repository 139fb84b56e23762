// A uniform integer of 64 random bits.

#ifndef DATASETD_SERVER_ORDER_UNIFORM_INT64_H_
#define DATASETD_SERVER_ORDER_UNIFORM_INT64_H_

#include <cstdint>

#include "cuda/kernels/math/random.h"

namespace datasetd {

// Returns an integer in [0, bound). Deviates from uniform by less than bound /
// 2^64.
inline uint64_t UniformInt64(uint64_t word, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >>
                               64);
}

// Returns half 0 or 1 of a block, as 64 bits.
inline uint64_t HalfOf(const Words4& words, uint64_t half) {
  return words.word[2 * half] | uint64_t{words.word[2 * half + 1]} << 32;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_UNIFORM_INT64_H_
