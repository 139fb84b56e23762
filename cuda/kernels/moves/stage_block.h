// Per-thread code of the stage-in kernel. For CUDA only.
//
// The source is read by aligned words of 16 bytes, each once: a read over the
// bus or from a peer is for whole words of 32 consecutive threads. Where the
// source is not aligned, neighbouring threads exchange words.

#ifndef DATASETD_CUDA_KERNELS_MOVES_STAGE_BLOCK_H_
#define DATASETD_CUDA_KERNELS_MOVES_STAGE_BLOCK_H_

#if defined(__CUDACC__)

#include <cstdint>

#include "cuda/kernels/program/bytes.h"
#include "cuda/kernels/program/stage_copy.h"

namespace datasetd {

inline constexpr int kStageWarp = 32;
// Words that a thread reads before it writes the first.
inline constexpr int kStageWordsInFlight = 4;

// The bytes of {first, second} from byte `shift`, in 1..15, on.
__device__ inline uint4 ShiftedWord(const uint4& first, const uint4& second,
                                    int shift) {
  uint32_t words[8] = {first.x,  first.y,  first.z,  first.w,
                       second.x, second.y, second.z, second.w};
  ShiftBytes<4>(words, shift);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ inline uint4 NextLanesWord(const uint4& word) {
  constexpr unsigned kAll = 0xFFFFFFFF;
  return make_uint4(
      __shfl_down_sync(kAll, word.x, 1), __shfl_down_sync(kAll, word.y, 1),
      __shfl_down_sync(kAll, word.z, 1), __shfl_down_sync(kAll, word.w, 1));
}

// All threads of a block call it.
__device__ inline void StageOne(const StageCopy& copy, int thread) {
  const auto address = reinterpret_cast<uintptr_t>(copy.from);
  const int shift = static_cast<int>(address % kStageAlignment);
  const auto* const from = reinterpret_cast<const uint4*>(address - shift);
  auto* const to = reinterpret_cast<uint4*>(copy.to);
  const int num_words = static_cast<int>(
      (copy.size_bytes + kStageAlignment - 1) / kStageAlignment);
  if (shift == 0) {
    for (int i = thread; i < num_words;
         i += kStageWordsInFlight * kStageThreads) {
      uint4 words[kStageWordsInFlight];
#pragma unroll
      for (int k = 0; k < kStageWordsInFlight; ++k) {
        const int at = i + k * kStageThreads;
        if (at < num_words) words[k] = from[at];
      }
#pragma unroll
      for (int k = 0; k < kStageWordsInFlight; ++k) {
        const int at = i + k * kStageThreads;
        if (at < num_words) to[at] = words[k];
      }
    }
    return;
  }
  // Words of the source that hold bytes of the copy: as many, or one more.
  const int num_read = static_cast<int>(
      (shift + copy.size_bytes + kStageAlignment - 1) / kStageAlignment);
  const int lane = thread % kStageWarp;
  for (int first = thread - lane; first < num_words; first += kStageThreads) {
    const int at = first + lane;
    uint4 word = make_uint4(0, 0, 0, 0);
    uint4 last = word;
    if (at < num_read) word = from[at];
    if (lane == kStageWarp - 1 && at + 1 < num_read) last = from[at + 1];
    uint4 next = NextLanesWord(word);
    if (lane == kStageWarp - 1) next = last;
    if (at < num_words) to[at] = ShiftedWord(word, next, shift);
  }
}

}  // namespace datasetd

#endif  // defined(__CUDACC__)

#endif  // DATASETD_CUDA_KERNELS_MOVES_STAGE_BLOCK_H_
