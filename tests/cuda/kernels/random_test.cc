#include "cuda/kernels/math/random.h"

#include <array>
#include <cstdint>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/philox_reference.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

struct KnownAnswer {
  std::array<uint32_t, 4> counter;
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 4> output;
};

// From the authors' kat_vectors.
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
    {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
     {0xFFFFFFFF, 0xFFFFFFFF},
     {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
    {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
     {0xA4093822, 0x299F31D0},
     {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
};

Words4 Philox(const std::array<uint32_t, 4>& counter,
              const std::array<uint32_t, 2>& key) {
  return Philox4x32({{counter[0], counter[1], counter[2], counter[3]}},
                    uint64_t{key[1]} << 32 | key[0]);
}

TEST(RandomTest, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const Words4 words = Philox(known.counter, known.key);
    EXPECT_THAT(words.word, ElementsAre(known.output[0], known.output[1],
                                        known.output[2], known.output[3]));
    EXPECT_EQ(reference::Philox(known.counter, known.key), known.output);
  }
}

TEST(RandomTest, EqualsTheReference) {
  std::mt19937 engine(1);
  for (int i = 0; i < 10000; ++i) {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    for (uint32_t& word : counter) word = engine();
    for (uint32_t& word : key) word = engine();
    const std::array<uint32_t, 4> expected = reference::Philox(counter, key);
    const Words4 words = Philox(counter, key);
    ASSERT_THAT(words.word, ElementsAre(expected[0], expected[1], expected[2],
                                        expected[3]));
  }
}

TEST(RandomTest, DrawPutsEachArgumentInItsCounterWord) {
  const std::array<uint32_t, 4> expected =
      reference::Philox({1, 2, 3, 4}, {0x55667788, 0x11223344});
  EXPECT_THAT(Draw(0x1122334455667788, 1, 2, 3, 4).word,
              ElementsAre(expected[0], expected[1], expected[2], expected[3]));
}

TEST(RandomTest, UniformFloatStaysBelowOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(0xFF), 0.0f);
  EXPECT_EQ(UniformFloat(0x100), 1.0f / 16777216.0f);
  EXPECT_EQ(UniformFloat(0x80000000), 0.5f);
  EXPECT_EQ(UniformFloat(0xFFFFFFFF), 1.0f - 1.0f / 16777216.0f);
}

TEST(RandomTest, UniformIntReachesBothEnds) {
  EXPECT_EQ(UniformInt(0, 9), 0u);
  EXPECT_EQ(UniformInt(0xFFFFFFFF, 9), 8u);
  EXPECT_EQ(UniformInt(0xFFFFFFFF, 1), 0u);
  // The first word of each value.
  EXPECT_EQ(UniformInt(0x7FFFFFFF, 2), 0u);
  EXPECT_EQ(UniformInt(0x80000000, 2), 1u);
}

}  // namespace
}  // namespace datasetd
