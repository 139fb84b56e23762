// Gathers the pixels of one output row on the host: copies a run of input
// pixels unchanged, into planes or interleaved.

#ifndef DATASETD_CUDA_KERNELS_HOST_GATHER_H_
#define DATASETD_CUDA_KERNELS_HOST_GATHER_H_

#include <cstdint>
#include <cstring>

#include "cuda/kernels/host/byte_vector.h"
#include "cuda/kernels/host/column_runs.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Pixels of PaintRunLoosely's pattern. Each plane needs room for one less after
// its end.
inline constexpr int32_t kLoosePixels = 8;

// Splits pixels `from` + k * `step`, of kChannels, into planes.
template <typename T, int kChannels>
void SplitRun(const T* from, int32_t count, int32_t step, T* planes,
              int32_t plane_stride) {
  if (kChannels == 1 && step == 1) {
    std::memcpy(planes, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  const int64_t stride = int64_t{step} * kChannels;
  for (int c = 0; c < kChannels; ++c) {
    T* to = planes + int64_t{c} * plane_stride;
    for (int32_t i = 0; i < count; ++i) to[i] = from[i * stride + c];
  }
}

template <typename T, int kChannels>
void CopyRun(const T* from, int32_t count, int32_t step, T* to) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * kChannels * sizeof(T));
    return;
  }
  const int64_t stride = int64_t{step} * kChannels;
  for (int32_t i = 0; i < count; ++i) {
    for (int c = 0; c < kChannels; ++c) {
      to[i * kChannels + c] = from[i * stride + c];
    }
  }
}

// Gathers one run of a row into planes (kNchw) or pixels (kNhwc), with `vector`
// unless it is null.
template <typename T, int kChannels, Layout kLayout>
void GatherRun(const T* row, const ColumnRun& run, const ByteVector* vector,
               T* to, int32_t plane_stride) {
  const T* from = row + int64_t{run.entry} * kChannels;
  if constexpr (kLayout == Layout::kNhwc) {
    T* pixels = to + int64_t{run.begin} * kChannels;
    if constexpr (sizeof(T) == 1 && kChannels == 3) {
      if (run.step < 0 && vector != nullptr) {
        vector->mirror_pixels3(from - 3 * (run.length - 1), run.length, pixels);
        return;
      }
    }
    CopyRun<T, kChannels>(from, run.length, run.step, pixels);
  } else if constexpr (sizeof(T) == 1 && kChannels == 3) {
    if (run.step != 0 && run.length >= 16 && vector != nullptr) {
      const bool is_mirrored = run.step < 0;
      const T* first = is_mirrored ? from - 3 * (run.length - 1) : from;
      vector->split_pixels3(first, run.length, is_mirrored, to + run.begin,
                            plane_stride);
    } else {
      SplitRun<T, kChannels>(from, run.length, run.step, to + run.begin,
                             plane_stride);
    }
  } else {
    SplitRun<T, kChannels>(from, run.length, run.step, to + run.begin,
                           plane_stride);
  }
}

// Sets `count` pixels from `to` on to `value`, which has one element per
// channel.
template <typename T, int kChannels, Layout kLayout>
void PaintRun(const T* value, int32_t count, int64_t plane_stride, T* to) {
  constexpr int kStep = kLayout == Layout::kNhwc ? kChannels : 1;
  for (int c = 0; c < kChannels; ++c) {
    T* out = kLayout == Layout::kNhwc ? to + c : to + c * plane_stride;
    const T element = value[c];
    for (int32_t i = 0; i < count; ++i) out[i * kStep] = element;
  }
}

// Like PaintRun with a pattern of kLoosePixels pixels in the tile's layout, but
// may overwrite pixels after the run up to the end of the last pattern. For
// tiles that are painted and gathered in order.
template <typename T, int kChannels, Layout kLayout>
void PaintRunLoosely(const T* pattern, int32_t count, int64_t plane_stride,
                     T* to) {
  for (int32_t i = 0; i < count; i += kLoosePixels) {
    if constexpr (kLayout == Layout::kNhwc) {
      std::memcpy(to + i * kChannels, pattern,
                  kLoosePixels * kChannels * sizeof(T));
    } else {
      for (int c = 0; c < kChannels; ++c) {
        std::memcpy(to + c * plane_stride + i, pattern + c * kLoosePixels,
                    kLoosePixels * sizeof(T));
      }
    }
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_GATHER_H_
