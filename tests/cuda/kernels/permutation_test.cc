#include "cuda/kernels/math/permutation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

static_assert(std::is_trivially_copyable_v<KeyedPermutation>);

// True when every index of [0, n) comes out exactly once.
bool IsBijection(const KeyedPermutation& permutation) {
  std::vector<bool> is_seen(permutation.size(), false);
  for (uint32_t p = 0; p < permutation.size(); ++p) {
    const uint32_t index = permutation(p);
    if (index >= permutation.size() || is_seen[index]) return false;
    is_seen[index] = true;
  }
  return true;
}

TEST(KeyedPermutationTest, IsABijectionOfEverySmallSize) {
  const uint64_t num_keys = testing::IsFull() ? 4 : 2;
  for (uint32_t n = 1; n <= 1500; ++n) {
    for (uint64_t key = 0; key < num_keys; ++key) {
      ASSERT_TRUE(IsBijection(KeyedPermutation(key, 3 * key, n)))
          << "n " << n << " key " << key;
    }
  }
}

TEST(KeyedPermutationTest, IsABijectionAroundPowersOfTwoAndSquares) {
  const int most_bits = testing::IsFull() ? 20 : 16;
  for (int bits = 11; bits <= most_bits; ++bits) {
    for (int offset = -3; offset <= 3; ++offset) {
      const uint32_t n = (1u << bits) + offset;
      ASSERT_TRUE(IsBijection(KeyedPermutation(bits, offset + 3, n)))
          << "n " << n;
    }
  }
  for (uint32_t root : {255u, 256u, 257u, 600u, 1000u}) {
    if (root > 257 && !testing::IsFull()) continue;
    for (int offset = -2; offset <= 2; ++offset) {
      const uint32_t n = root * root + offset;
      ASSERT_TRUE(IsBijection(KeyedPermutation(root, 7, n))) << "n " << n;
      // Just below and above rows * columns with unequal sides.
      const uint32_t m = root * (root + 1) + offset;
      ASSERT_TRUE(IsBijection(KeyedPermutation(root, 7, m))) << "n " << m;
    }
  }
}

TEST(KeyedPermutationTest, LargestSizesStayInRangeAndRepeatNothing) {
  for (uint32_t n : {0xFFFFFFFFu, 0xFFFFFFFEu, 0x80000001u, 0x80000000u,
                     0xFFFE0001u /* 65535 squared */, 0xFFFE0002u}) {
    const KeyedPermutation permutation(5, 1, n);
    std::vector<uint32_t> indices;
    const uint32_t count = testing::IsFull() ? 200000 : 50000;
    for (uint32_t i = 0; i < count; ++i) {
      indices.push_back(permutation(i));
      indices.push_back(permutation(n - 1 - i));
    }
    for (uint32_t index : indices) ASSERT_LT(index, n);
    std::sort(indices.begin(), indices.end());
    EXPECT_EQ(std::adjacent_find(indices.begin(), indices.end()), indices.end())
        << "n " << n;
  }
}

TEST(KeyedPermutationTest, IsAFunctionOfItsArguments) {
  const KeyedPermutation permutation(11, 12, 1000003);
  const KeyedPermutation same(11, 12, 1000003);
  for (uint32_t p = 0; p < 1000; ++p) ASSERT_EQ(permutation(p), same(p));
}

TEST(KeyedPermutationTest, EveryBitOfSeedAndEpochChangesTheOrder) {
  constexpr uint32_t kSize = 1000003;
  constexpr uint32_t kCount = 1000;
  const KeyedPermutation base(0x123456789ABCDEF0, 0x0FEDCBA987654321, kSize);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    const KeyedPermutation other_seed(0x123456789ABCDEF0 ^ flip,
                                      0x0FEDCBA987654321, kSize);
    const KeyedPermutation other_epoch(0x123456789ABCDEF0,
                                       0x0FEDCBA987654321 ^ flip, kSize);
    int num_equal = 0;
    for (uint32_t p = 0; p < kCount; ++p) {
      num_equal += base(p) == other_seed(p);
      num_equal += base(p) == other_epoch(p);
    }
    // Poisson with mean 0.002: at most 1 but with probability 2e-6 (x 64).
    EXPECT_LE(num_equal, 1) << "bit " << bit;
  }
}

// Eight rounds fail this.
TEST(FeistelPermutationTest, SixteenRoundsGiveEveryOrderOfAFewEquallyOften) {
  const double expected = testing::IsFull() ? 400 : 200;
  for (const uint32_t n : {3u, 4u, 5u, 6u}) {
    size_t num_orders = 1;
    for (uint32_t k = 2; k <= n; ++k) num_orders *= k;
    std::map<uint32_t, int> counts;  // by the order's digits
    const auto num_keys = static_cast<uint64_t>(expected) * num_orders;
    for (uint64_t key = 0; key < num_keys; ++key) {
      const FeistelPermutation<16> permutation(7, key, n);
      uint32_t order = 0;
      for (uint32_t p = 0; p < n; ++p) order = 10 * order + permutation(p);
      ++counts[order];
    }
    ASSERT_EQ(counts.size(), num_orders);
    double chi_squared = 0;
    for (const auto& [order, count] : counts) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    // Five standard deviations.
    const auto freedom = static_cast<double>(num_orders - 1);
    EXPECT_LT(chi_squared, freedom + 5 * std::sqrt(2 * freedom)) << n;
  }
}

TEST(FeistelPermutationTest, OpIndicesTellOrdersApart) {
  const FeistelPermutation<16> one(1, 2, 1000003, 5);
  const FeistelPermutation<16> other(1, 2, 1000003, 6);
  int num_equal = 0;
  for (uint32_t p = 0; p < 1000; ++p) num_equal += one(p) == other(p);
  EXPECT_LE(num_equal, 1);
}

}  // namespace
}  // namespace datasetd
