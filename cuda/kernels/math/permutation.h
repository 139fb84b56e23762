// A keyed bijection of [0, n), computed per position: the order of an epoch for
// datasets too large for a table. A pure function of (seed, epoch, n, position)
// in O(1) memory, with the same bits on host and device.
//
// Construction: an alternating Feistel network on Z_rows x Z_columns with
// modular addition (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
// CT-RSA 2002), where rows = ceil(sqrt(n)) and columns = ceil(n / rows). Round
// function i of x is element x of a SplitMix64 stream (Steele, Lea, Flood,
// OOPSLA 2014) that starts at round key i; the round keys are words of Philox
// at (seed, epoch).
//
// A result outside [0, n) is fed in again. Fewer than `rows` points of the
// domain are outside, and a walk visits each at most once, so one call takes at
// most rows (<= 65536) passes of kRounds rounds, on average less than 1 + 1 /
// sqrt(n).
//
// A Feistel network is not uniform over the orders of a small n: below
// Sampler::kMaxTableSize a table is used instead, or twice as many rounds,
// which are uniform as far as 200,000 orders of 2 to 33 show. It is a bijection
// for every n.

#ifndef DATASETD_CUDA_KERNELS_MATH_PERMUTATION_H_
#define DATASETD_CUDA_KERNELS_MATH_PERMUTATION_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"

namespace datasetd {

// Trivially copyable; may be constructed on the host and used on the device.
template <int kNumRounds>
class FeistelPermutation {
 public:
  static constexpr int kRounds = kNumRounds;
  static_assert(kRounds % 2 == 0);

  // `op_index` tells orders of one seed and epoch apart. REQUIRES: n >= 1.
  DATASETD_HOST_DEVICE FeistelPermutation(uint64_t seed, uint64_t epoch,
                                          uint32_t n,
                                          uint32_t op_index = kShuffleOpIndex)
      : n_(n), rows_(CeilSqrt(n)), columns_((n - 1) / rows_ + 1) {
    for (int i = 0; i < kRounds / 2; ++i) {
      // The table uses draws below kFirstDraw.
      const Words4 words =
          Draw(seed, kFirstDraw + i, op_index, static_cast<uint32_t>(epoch),
               static_cast<uint32_t>(epoch >> 32));
      keys_[2 * i] = Join(words.word[0], words.word[1]);
      keys_[2 * i + 1] = Join(words.word[2], words.word[3]);
    }
  }

  // Returns the index at `position`. REQUIRES: position < n.
  DATASETD_HOST_DEVICE uint32_t operator()(uint32_t position) const {
    uint32_t row = position / columns_;
    uint32_t column = position - row * columns_;
    uint32_t index;
    do {
      for (int i = 0; i < kRounds; i += 2) {
        row = AddModulo(row, Round(keys_[i], column, rows_), rows_);
        column =
            AddModulo(column, Round(keys_[i + 1], row, columns_), columns_);
      }
      // At most rows_ * columns_ - 1 < 2^32.
      index = row * columns_ + column;
    } while (index >= n_);
    return index;
  }

  DATASETD_HOST_DEVICE uint32_t size() const { return n_; }

 private:
  static constexpr uint32_t kFirstDraw = 0x80000000u;

  DATASETD_HOST_DEVICE static uint64_t Join(uint32_t low, uint32_t high) {
    return low | uint64_t{high} << 32;
  }

  // Returns a value in [0, bound).
  DATASETD_HOST_DEVICE static uint32_t Round(uint64_t key, uint32_t x,
                                             uint32_t bound) {
    uint64_t z = key + x * uint64_t{0x9E3779B97F4A7C15u};
    z = (z ^ (z >> 30)) * uint64_t{0xBF58476D1CE4E5B9u};
    z = (z ^ (z >> 27)) * uint64_t{0x94D049BB133111EBu};
    return UniformInt(static_cast<uint32_t>((z ^ (z >> 31)) >> 32), bound);
  }

  // REQUIRES: a, b < modulus <= 65536.
  DATASETD_HOST_DEVICE static uint32_t AddModulo(uint32_t a, uint32_t b,
                                                 uint32_t modulus) {
    const uint32_t sum = a + b;
    return sum >= modulus ? sum - modulus : sum;
  }

  // Returns the least s with s * s >= n.
  DATASETD_HOST_DEVICE static uint32_t CeilSqrt(uint32_t n) {
    uint32_t floor = 0;  // of the root of n - 1
    for (uint32_t bit = 1u << 15; bit != 0; bit >>= 1) {
      const uint32_t next = floor | bit;
      if (next * next <= n - 1) floor = next;
    }
    return floor + 1;
  }

  uint32_t n_;
  uint32_t rows_;
  uint32_t columns_;
  uint64_t keys_[kRounds];
};

// Two and four rounds fail tests/server/order/sampler_quality_test.cc, six pass
// it.
using KeyedPermutation = FeistelPermutation<8>;

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_PERMUTATION_H_
