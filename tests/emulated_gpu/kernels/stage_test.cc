// The stage-in kernel: copies of any size from any address are exact, touch
// only whole words that hold bytes of theirs, and read each word once.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "cuda/kernels/program/stage_copy.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;

constexpr int64_t kWord = kStageAlignment;

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<uint8_t[], Free>;

// Bytes that are drawn with a seed, in memory of whole words.
Memory Random(int64_t size_bytes, uint32_t seed) {
  Memory memory(static_cast<uint8_t*>(std::aligned_alloc(
      256, static_cast<size_t>((size_bytes + 255) / 256 * 256))));
  std::mt19937 engine(seed);
  std::generate_n(memory.get(), size_bytes,
                  [&] { return static_cast<uint8_t>(engine()); });
  return memory;
}

int64_t Whole(int64_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

emulated_gpu::LaunchConfig Checked() {
  emulated_gpu::LaunchConfig config;
  config.count_accesses = true;
  return config;
}

TEST(StageTest, AnySizeFromAnyAddress) {
  std::vector<int64_t> sizes = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 500, 511};
  for (const int64_t size : {4096, 4097, 8191, 16'400, 32'768}) {
    sizes.push_back(size);
  }
  for (const int64_t size : sizes) {
    for (int64_t shift = 0; shift < kWord; ++shift) {
      if (size > 600 && shift % 5 != 0) continue;
      // Nothing but the words that hold its bytes may be touched.
      const int64_t from_bytes = Whole(shift + size);
      const Memory from = Random(from_bytes, 1);
      const Memory to = Random(Whole(size), 2);
      const std::vector<StageCopy> copies = {
          {.from = from.get() + shift, .to = to.get(), .size_bytes = size}};
      const auto launched = emulated_gpu::LaunchStageKernel(
          emulated_gpu::AugmentModule(), Checked(), 1, copies,
          {{from.get(), from_bytes, false}, {to.get(), Whole(size), true}});
      ASSERT_THAT(launched, IsOk());
      ASSERT_FALSE((*launched)->fault.has_value())
          << (*launched)->fault->ToString();
      ASSERT_TRUE(std::equal(to.get(), to.get() + size, from.get() + shift))
          << size << " bytes, from " << shift;
    }
  }
}

TEST(StageTest, BlocksTakeTheCopiesInTurn) {
  constexpr int64_t kBytes = 300;
  constexpr int kCopies = 23;
  const Memory from = Random(Whole(kBytes * kCopies), 3);
  const Memory to = Random(Whole(kBytes) * kCopies, 4);
  std::vector<StageCopy> copies;
  for (int i = 0; i < kCopies; ++i) {
    copies.push_back({.from = from.get() + kBytes * (kCopies - 1 - i),
                      .to = to.get() + Whole(kBytes) * i,
                      .size_bytes = kBytes});
  }
  const auto launched = emulated_gpu::LaunchStageKernel(
      emulated_gpu::AugmentModule(), Checked(), 4, copies,
      {{from.get(), Whole(kBytes * kCopies), false},
       {to.get(), Whole(kBytes) * kCopies, true}});
  ASSERT_THAT(launched, IsOk());
  ASSERT_FALSE((*launched)->fault.has_value())
      << (*launched)->fault->ToString();
  for (const StageCopy& copy : copies) {
    EXPECT_TRUE(std::equal(copy.to, copy.to + kBytes, copy.from));
  }
}

TEST(StageTest, ReadsAreOfWholeSectors) {
  constexpr int64_t kBytes = kStagePieceBytes;
  for (const int64_t shift : {0, 3}) {
    const Memory from = Random(kBytes + kWord, 5);
    const Memory to = Random(kBytes, 6);
    const auto launched = emulated_gpu::LaunchStageKernel(
        emulated_gpu::AugmentModule(), Checked(), 1,
        {{.from = from.get() + shift, .to = to.get(), .size_bytes = kBytes}},
        {{from.get(), kBytes + kWord, false}, {to.get(), kBytes, true}});
    ASSERT_THAT(launched, IsOk());
    const auto& counters = (*launched)->counters;
    // Loads of the list come on top; an unaligned warp reads one word more.
    const int64_t sectors = kBytes / 32;
    EXPECT_LE(counters.global_loads.sectors,
              sectors + (shift == 0 ? 40 : sectors / 8 + 40));
    EXPECT_EQ(counters.global_stores.sectors, sectors);
  }
}

}  // namespace
}  // namespace datasetd
