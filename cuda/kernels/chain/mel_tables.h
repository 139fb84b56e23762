// The window, the roots of unity and the filters of a MelSpectrogram. A team
// makes them in its scratch memory, by functions that give the same bits on
// host and device.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_MEL_TABLES_H_
#define DATASETD_CUDA_KERNELS_CHAIN_MEL_TABLES_H_

#include <cstdint>

#include "base/checked_math.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/sequence.h"

namespace datasetd {

// Frames that a team transforms at the same time, whose values are neighbours
// in memory.
inline constexpr int kFrameLanes = 16;

DATASETD_HOST_DEVICE inline int32_t NumBins(const MelSpectrogramParams& mel) {
  return mel.n_fft / 2 + 1;
}

// Length of the complex transform of a frame: an even frame is one of pairs.
DATASETD_HOST_DEVICE inline int32_t FourierLength(
    const MelSpectrogramParams& mel) {
  return mel.n_fft % 2 == 0 ? mel.n_fft / 2 : mel.n_fft;
}

// A factor of `length`, which is at least 2: 4, or a prime.
DATASETD_HOST_DEVICE inline int32_t NextRadix(int32_t length) {
  if (length % 4 == 0) return 4;
  DATASETD_NO_UNROLL
  for (int32_t radix = 2; radix * radix <= length; ++radix) {
    if (length % radix == 0) return radix;
  }
  return length;
}

// The place of a frequency on the mel scale.
DATASETD_HOST_DEVICE inline double MelOfHertz(double hertz, bool is_slaney) {
  constexpr double kLn10 = 0x1.26bb1bbb55516p+1;
  if (!is_slaney) return 2595.0 * (Log(1.0 + hertz / 700.0) / kLn10);
  if (hertz < 1000.0) return hertz * 3.0 / 200.0;
  return 15.0 + Log(hertz / 1000.0) * 27.0 / Log(6.4);
}

// The frequency of a point of the mel scale, in torchaudio's steps of float32.
DATASETD_HOST_DEVICE inline float HertzOfMel(float mel, bool is_slaney) {
  constexpr double kLn10 = 0x1.26bb1bbb55516p+1;
  if (!is_slaney) {
    const double exponent = static_cast<double>(mel / 2595.0f) * kLn10;
    return 700.0f * (static_cast<float>(Exp(exponent)) - 1.0f);
  }
  if (mel < 15.0f) return static_cast<float>(200.0 / 3.0) * mel;
  const auto step = static_cast<float>(Log(6.4) / 27.0);
  return 1000.0f *
         static_cast<float>(Exp(static_cast<double>(step * (mel - 15.0f))));
}

// Element `i` of torch.linspace(low, high, count), count at least 2.
DATASETD_HOST_DEVICE inline float LinearPoint(float low, float high,
                                              int32_t count, int32_t i) {
  const float step = (high - low) / static_cast<float>(count - 1);
  return i < count / 2 ? low + step * static_cast<float>(i)
                       : high - step * static_cast<float>(count - 1 - i);
}

// Corner `i` of the filters, 0 to n_mels + 1: filter m rises from corner m to
// m + 1, and falls to m + 2.
DATASETD_HOST_DEVICE inline float MelCorner(const MelSpectrogramParams& mel,
                                            int32_t i) {
  const bool is_slaney = mel.is_slaney_scale;
  const auto low = static_cast<float>(MelOfHertz(mel.f_min, is_slaney));
  const auto high = static_cast<float>(MelOfHertz(mel.f_max, is_slaney));
  return HertzOfMel(LinearPoint(low, high, mel.n_mels + 2, i), is_slaney);
}

// The frequency of a bin.
DATASETD_HOST_DEVICE inline float BinHertz(const MelSpectrogramParams& mel,
                                           int32_t bin) {
  return LinearPoint(0.0f, static_cast<float>(mel.sample_rate / 2),
                     NumBins(mel), bin);
}

// Element `i` of the periodic Hann window, centred in a frame.
DATASETD_HOST_DEVICE inline float HannWindow(const MelSpectrogramParams& mel,
                                             int32_t i) {
  i -= (mel.n_fft - mel.win_length) / 2;
  if (i < 0 || i >= mel.win_length) return 0.0f;
  if (mel.win_length == 1) return 1.0f;
  const double turn =
      static_cast<double>(2 * int64_t{i}) / static_cast<double>(mel.win_length);
  return static_cast<float>(0.5 - 0.5 * SinCosPi(turn).cos);
}

// Elements of ChainMemory::line: see MelTables.
inline int64_t MelTableElements(const MelSpectrogramParams& mel) {
  return 3 * int64_t{mel.n_fft} + mel.n_mels + 3;
}
// Of weights and indices each. A bin is in two filters at most; a filter may
// have some weights of 0 on both sides.
inline int64_t MelWeightElements(const MelSpectrogramParams& mel) {
  return 2 * int64_t{NumBins(mel)} + 4 * int64_t{mel.n_mels} + 1;
}
// Of rows: two buffers of a group of frames, complex, and their powers.
inline int64_t FourierElements(const MelSpectrogramParams& mel) {
  return SaturatingProduct(
      kFrameLanes, 4 * int64_t{FourierLength(mel)} + int64_t{NumBins(mel)}, 1);
}

struct MelTables {
  DATASETD_HOST_DEVICE MelTables(const MelSpectrogramParams& mel,
                                 const ChainMemory& memory)
      : window(memory.line),
        cos(window + mel.n_fft),
        sin(cos + mel.n_fft),
        corners(sin + mel.n_fft),
        scale(corners + mel.n_mels + 2),
        weights(memory.weights),
        first_bin(memory.indices),
        first_weight(first_bin + mel.n_mels) {}

  float* window;          // [n_fft]
  float* cos;             // [n_fft]: of 2 pi i / n_fft
  float* sin;             // [n_fft]
  float* corners;         // [n_mels + 2]
  float* scale;           // of powers
  float* weights;         // those of filter 0, then those of filter 1, ...
  int32_t* first_bin;     // [n_mels]
  int32_t* first_weight;  // [n_mels + 1]
};

// Returns the first bin at or above a frequency, about.
DATASETD_HOST_DEVICE inline int32_t BinNear(const MelSpectrogramParams& mel,
                                            float hertz) {
  const auto last = static_cast<float>(NumBins(mel) - 1);
  const float bin = hertz / static_cast<float>(mel.sample_rate / 2) * last;
  return static_cast<int32_t>(bin < last ? bin : last);
}

// Makes the tables. All ranks call it.
template <typename Team>
DATASETD_HOST_DEVICE void MakeMelTables(const Team& team,
                                        const MelSpectrogramParams& mel,
                                        const MelTables& tables) {
  const int32_t num_bins = NumBins(mel);
  DATASETD_NO_UNROLL
  for (int32_t i = team.rank(); i < mel.n_fft; i += team.size()) {
    tables.window[i] = HannWindow(mel, i);
    const SinCos root = SinCosPi(static_cast<double>(2 * int64_t{i}) /
                                 static_cast<double>(mel.n_fft));
    tables.cos[i] = static_cast<float>(root.cos);
    tables.sin[i] = static_cast<float>(root.sin);
  }
  DATASETD_NO_UNROLL
  for (int32_t i = team.rank(); i < mel.n_mels + 2; i += team.size()) {
    tables.corners[i] = MelCorner(mel, i);
  }
  team.Sync();
  if (team.rank() == 0) {
    double norm = 0.0;
    for (int32_t i = 0; mel.is_normalized && i < mel.n_fft; ++i) {
      norm += static_cast<double>(tables.window[i]) *
              static_cast<double>(tables.window[i]);
    }
    *tables.scale = mel.is_normalized ? static_cast<float>(1.0 / norm) : 1.0f;
    int32_t weight = 0;
    for (int32_t m = 0; m < mel.n_mels; ++m) {
      const int32_t first = BinNear(mel, tables.corners[m]);
      const int32_t last = BinNear(mel, tables.corners[m + 2]) + 1;
      tables.first_bin[m] = first;
      tables.first_weight[m] = weight;
      weight += (last < num_bins ? last + 1 : num_bins) - first;
    }
    tables.first_weight[mel.n_mels] = weight;
  }
  team.Sync();
  DATASETD_NO_UNROLL
  for (int32_t m = team.rank(); m < mel.n_mels; m += team.size()) {
    const float low = tables.corners[m];
    const float middle = tables.corners[m + 1];
    const float high = tables.corners[m + 2];
    const float area = mel.is_slaney_norm ? 2.0f / (high - low) : 1.0f;
    const int32_t first = tables.first_weight[m];
    DATASETD_NO_UNROLL
    for (int32_t i = first; i < tables.first_weight[m + 1]; ++i) {
      const float hertz = BinHertz(mel, tables.first_bin[m] + i - first);
      const float rise = (hertz - low) / (middle - low);
      const float fall = (high - hertz) / (high - middle);
      const float least = rise < fall ? rise : fall;
      tables.weights[i] = (least > 0.0f ? least : 0.0f) * area;
    }
  }
  team.Sync();
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_MEL_TABLES_H_
