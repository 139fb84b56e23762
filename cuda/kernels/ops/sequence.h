// The ops on sequences: waveforms and spectrograms. Their parameters and draws;
// sequence_executor.h runs them.
//
// In a Step a waveform is out_channels x 1 x out_width, [T, C] in memory; a
// spectrogram is out_channels x out_height x out_width, [C, F, T].

#ifndef DATASETD_CUDA_KERNELS_OPS_SEQUENCE_H_
#define DATASETD_CUDA_KERNELS_OPS_SEQUENCE_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// torchaudio: clamp(x * gain, -1, 1).
struct VolParams {
  float gain;
};
using VolDraw = VolParams;

template <typename Visit>
void VisitDrawn(const VolDraw& draw, const Visit& visit) {
  visit("gain", draw.gain);
}

// torch-audiomentations: x * 10^(decibels / 20).
struct GainParams {
  float low, high;  // decibels
};

struct GainDraw {
  float decibels;
  float factor;
};

template <typename Visit>
void VisitDrawn(const GainDraw& draw, const Visit& visit) {
  visit("gain_in_db", draw.decibels);
  visit("gain", draw.factor);
}

DATASETD_HOST_DEVICE inline GainDraw DrawGain(const GainParams& params,
                                              const DrawKey& key,
                                              int /*height*/, int /*width*/) {
  constexpr double kLn10Over20 = 0x1.d791c5f888823p-4;
  GainDraw draw;
  draw.decibels =
      UniformBetween(DrawWords(key, 1).word[0], params.low, params.high);
  draw.factor =
      static_cast<float>(Exp(static_cast<double>(draw.decibels) * kLn10Over20));
  return draw;
}

// x * -1.
struct PolarityInversionParams {};
using PolarityInversionDraw = PolarityInversionParams;

// y[t] = x[t - steps]. The steps are within low..high, rounded.
struct ShiftParams {
  double low, high;
  bool is_fraction;  // of the length
  bool rolls;        // steps that leave enter at the other end; else zeros
};

struct ShiftDraw {
  int32_t steps;
  int32_t length;  // of what is moved
  bool rolls;
};

template <typename Visit>
void VisitDrawn(const ShiftDraw& draw, const Visit& visit) {
  visit("shift", draw.steps);
  visit("rollover", draw.rolls);
}

DATASETD_HOST_DEVICE inline ShiftDraw DrawShift(const ShiftParams& params,
                                                const DrawKey& key,
                                                int /*height*/, int width) {
  const double unit = params.is_fraction ? static_cast<double>(width) : 1.0;
  const auto low = static_cast<int32_t>(RoundHalfEven(params.low * unit));
  const auto high = static_cast<int32_t>(RoundHalfEven(params.high * unit));
  const auto count = static_cast<uint32_t>(high - low) + 1;
  const uint32_t steps = UniformInt(DrawWords(key, 1).word[0], count);
  return {low + static_cast<int32_t>(steps), width, params.rolls};
}

// torchaudio's add_noise, of a recording of another dataset, whose field is as
// that of a FieldProgram: x + scale * noise, for each channel.
struct AddNoiseParams {
  float low, high;  // decibels
  const uint8_t* source;
  const RaggedSample* ragged;  // null: all have sample_steps steps
  int64_t sample_stride_bytes;
  uint32_t num_samples;
  int32_t sample_steps;
  int32_t num_channels;  // 1: the same noise for all channels
  Dtype dtype;
};

struct AddNoiseDraw {
  float decibels;
  uint32_t sample;
  int32_t first_step;   // of the noise
  int32_t noise_steps;  // of all of it
  int32_t steps;        // that noise is added to
  const uint8_t* data;  // of the noise
};

template <typename Visit>
void VisitDrawn(const AddNoiseDraw& draw, const Visit& visit) {
  visit("snr", draw.decibels);
  visit("noise", draw.sample);
  visit("start", draw.first_step);
}

DATASETD_HOST_DEVICE inline AddNoiseDraw DrawAddNoise(
    const AddNoiseParams& params, const DrawKey& key, int /*height*/,
    int width) {
  const Words4 words = DrawWords(key, 1);
  AddNoiseDraw draw;
  draw.decibels = UniformBetween(words.word[0], params.low, params.high);
  draw.sample = UniformInt(words.word[1], params.num_samples);
  draw.steps = width;
  draw.noise_steps = params.sample_steps;
  draw.data = params.source;
  if (params.ragged == nullptr) {
    draw.data += int64_t{draw.sample} * params.sample_stride_bytes;
  } else {
    draw.noise_steps = params.ragged[draw.sample].height;
    draw.data += params.ragged[draw.sample].offset_bytes;
  }
  // One that is as long is used as a whole, a shorter one as a ring.
  const int32_t last = draw.noise_steps >= width ? draw.noise_steps - width
                                                 : draw.noise_steps - 1;
  draw.first_step = last > 0
                        ? static_cast<int32_t>(UniformInt(
                              words.word[2], static_cast<uint32_t>(last) + 1))
                        : 0;
  return draw;
}

// The factor of the noise, by the energies of both; 0 if there is none.
DATASETD_HOST_DEVICE inline float NoiseScale(double energy, double noise_energy,
                                             float decibels) {
  constexpr double kLn10Over20 = 0x1.d791c5f888823p-4;
  constexpr double kLargest = 0x1.fffffep127;  // of float32
  constexpr double kMostEnergy = 0x1p1000;
  const bool is_regular = energy > 0.0 && energy < kMostEnergy &&
                          noise_energy > 0.0 && noise_energy < kMostEnergy;
  if (!is_regular) return 0.0f;
  const double scale = Sqrt(Quotient(energy, noise_energy)) *
                       Exp(static_cast<double>(-decibels) * kLn10Over20);
  return scale <= kLargest ? static_cast<float>(scale) : 0.0f;
}

// As on the wire.
enum class FramePadMode : uint8_t {
  kConstant = 1,
  kReplicate = 2,
  kReflect = 3,
  kCircular = 4,
};

// torchaudio's MelSpectrogram with a Hann window. All sizes fit: win_length <=
// n_fft <= the padded waveform.
struct MelSpectrogramParams {
  int32_t sample_rate;
  int32_t n_fft, win_length, hop_length;
  int32_t pad;     // zeros on both sides
  int32_t center;  // n_fft / 2 on both sides, by pad_mode; else 0
  int32_t n_mels;
  FramePadMode pad_mode;
  bool is_normalized;
  bool is_slaney_norm;
  bool is_slaney_scale;
  double power;
  double f_min, f_max;
};
using MelSpectrogramDraw = MelSpectrogramParams;

template <typename Visit>
void VisitDrawn(const MelSpectrogramDraw& draw, const Visit& visit) {
  visit("n_fft", draw.n_fft);
  visit("win_length", draw.win_length);
  visit("hop_length", draw.hop_length);
  visit("n_mels", draw.n_mels);
}

// multiplier * log10(max(x, kMinAmplitude)), at least the largest less top_db.
struct AmplitudeToDBParams {
  float multiplier;  // 10 or 20
  float top_db;      // negative: no limit
};
using AmplitudeToDBDraw = AmplitudeToDBParams;
inline constexpr float kMinAmplitude = 1e-10f;

template <typename Visit>
void VisitDrawn(const AmplitudeToDBDraw& draw, const Visit& visit) {
  visit("multiplier", draw.multiplier);
}

// torchaudio's mask_along_axis: sets `begin` <= position < `end` to `value`. A
// mask that may be longer than the axis may begin before it.
struct AxisMaskParams {
  int32_t longest;  // the mask is shorter
  float value;
  double share;  // of the axis, at most; from 1 on: any
  bool is_iid;   // drawn for each channel
};

struct AxisMaskDraw {
  float longest;
  float value;
  int32_t size;    // of the axis
  int32_t frames;  // that are masked
  bool is_iid;
};

struct AxisMask {
  int32_t begin, end;
};

// The mask of a channel; of all if it is not is_iid.
DATASETD_HOST_DEVICE inline AxisMask MaskOf(const AxisMaskDraw& draw,
                                            const DrawKey& key, int channel) {
  if (draw.longest < 1.0f) return {0, 0};
  const Words4 words =
      DrawWords(key, 1 + static_cast<uint32_t>(draw.is_iid ? channel : 0));
  const float length = UniformFloat(words.word[0]) * draw.longest;
  const float first =
      UniformFloat(words.word[1]) * (static_cast<float>(draw.size) - length);
  const auto begin = static_cast<int32_t>(first);
  return {begin, begin + static_cast<int32_t>(length)};
}

// Channels that a mask is drawn for at most.
inline constexpr int kMaxMaskedChannels = 64;

template <typename Visit>
void VisitDrawn(const AxisMaskDraw& draw, const Step& step, const DrawKey& key,
                const Visit& visit) {
  float begin[kMaxMaskedChannels];
  float end[kMaxMaskedChannels];
  const int count = draw.is_iid ? step.out_channels : 1;
  for (int c = 0; c < count; ++c) {
    const AxisMask mask = MaskOf(draw, key, c);
    begin[c] = static_cast<float>(mask.begin);
    end[c] = static_cast<float>(mask.end);
  }
  visit.List("mask_start", begin, count);
  visit.List("mask_end", end, count);
}

struct TimeMaskingParams : AxisMaskParams {};
struct TimeMaskingDraw : AxisMaskDraw {};
struct FrequencyMaskingParams : AxisMaskParams {};
struct FrequencyMaskingDraw : AxisMaskDraw {};

DATASETD_HOST_DEVICE inline AxisMaskDraw DrawAxisMask(
    const AxisMaskParams& params, int size, int frames) {
  int32_t longest = params.longest;
  if (params.share < 1.0) {  // torchaudio: int(size * p)
    const auto most =
        static_cast<int32_t>(static_cast<double>(size) * params.share);
    longest = most < longest ? most : longest;
  }
  return {static_cast<float>(longest), params.value, size, frames,
          params.is_iid};
}

DATASETD_HOST_DEVICE inline TimeMaskingDraw DrawTimeMasking(
    const TimeMaskingParams& params, const DrawKey&, int /*height*/,
    int width) {
  return {DrawAxisMask(params, width, width)};
}
DATASETD_HOST_DEVICE inline FrequencyMaskingDraw DrawFrequencyMasking(
    const FrequencyMaskingParams& params, const DrawKey&, int height,
    int width) {
  return {DrawAxisMask(params, height, width)};
}

// (x - mean[c]) / std[c], of `num_channels` channels from first_channel on; of
// all by the first numbers if that is 0. A longer list is several steps.
inline constexpr int kMaxNormalizedChannels = 10;
struct NormalizeSequenceParams {
  int32_t first_channel, num_channels;
  float mean[kMaxNormalizedChannels];
  float std[kMaxNormalizedChannels];
  int32_t is_planar;  // [C, F, T]; else [T, C]
};
using NormalizeSequenceDraw = NormalizeSequenceParams;

inline const char* NameOf(const NormalizeSequenceParams&) {
  return "Normalize";
}

template <typename Visit>
void VisitDrawn(const NormalizeSequenceDraw& draw, const Visit& visit) {
  const int count = draw.num_channels == 0 ? 1 : draw.num_channels;
  visit.List("mean", draw.mean, count);
  visit.List("std", draw.std, count);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_SEQUENCE_H_
