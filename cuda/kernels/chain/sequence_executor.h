// Runs one sample of a field of numbers through the ops on sequences
// (ops/sequence.h) on a team of ranks, as ChainExecutor does images.
//
// The sample is converted to float32 in scratch memory, where the applied steps
// change it one after another, and rounded once, to the slot.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_SEQUENCE_EXECUTOR_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_SEQUENCE_EXECUTOR_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_SEQUENCE_EXECUTOR_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_SEQUENCE_EXECUTOR_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/mel_spectrogram.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/draw_step.h"
#include "cuda/kernels/ops/sequence.h"
#include "cuda/kernels/program/crop.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

template <typename T, typename Team>
DATASETD_HOST_DEVICE inline void LoadAll(const Team& team, const uint8_t* from,
                                         int64_t count, float* to) {
  DATASETD_NO_UNROLL
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    to[i] = static_cast<float>(LoadAs<T>(from, i));
  }
}

// Loads `count` elements as floats. All ranks call it.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE void LoadFloats(
    Team team, const uint8_t* from, Dtype dtype, int64_t count, float* to) {
  switch (dtype) {
    case Dtype::kUint8:
      return LoadAll<uint8_t>(team, from, count, to);
    case Dtype::kInt8:
      return LoadAll<int8_t>(team, from, count, to);
    case Dtype::kInt16:
      return LoadAll<int16_t>(team, from, count, to);
    case Dtype::kUint16:
      return LoadAll<uint16_t>(team, from, count, to);
    case Dtype::kInt32:
      return LoadAll<int32_t>(team, from, count, to);
    case Dtype::kUint32:
      return LoadAll<uint32_t>(team, from, count, to);
    case Dtype::kInt64:
      return LoadAll<int64_t>(team, from, count, to);
    case Dtype::kFloat32:
      return LoadAll<float>(team, from, count, to);
    case Dtype::kFloat64:
      return LoadAll<double>(team, from, count, to);
    case Dtype::kFloat16:
      DATASETD_NO_UNROLL
      for (int64_t i = team.rank(); i < count; i += team.size()) {
        to[i] = Float16ToFloat(LoadAs<uint16_t>(from, i));
      }
      return;
    case Dtype::kBfloat16:
      DATASETD_NO_UNROLL
      for (int64_t i = team.rank(); i < count; i += team.size()) {
        to[i] = FloatFromBits(uint32_t{LoadAs<uint16_t>(from, i)} << 16);
      }
      return;
  }
}

template <typename Team>
class SequenceExecutor {
 public:
  // All arguments must outlive this. `state` and `memory` belong to the team.
  // All ranks call it.
  DATASETD_HOST_DEVICE SequenceExecutor(const Team& team,
                                        const AugmentProgram& program,
                                        const FieldProgram& field,
                                        const ChainMemory& memory,
                                        ChainState* state)
      : team_(team),
        program_(program),
        field_(field),
        memory_(memory),
        state_(*state) {}

  // Runs row `index` of the batch. All ranks call it. Returns false if the work
  // was stopped.
  DATASETD_HOST_DEVICE bool Run(const BatchTask& batch, int32_t index) {
    const int64_t draw_index = DrawIndex(batch, index);
    const bool is_cropped = field_.crop_kind != CropKind::kNone;
    RowCrop crop = {};
    if (is_cropped) {
      crop = CropRow(program_, field_, batch, index);
    } else {
      crop.data = SampleData(program_.mixture, field_, batch.indices[index]);
    }
    const RowLength length = LengthOf(field_, crop.num_steps);
    DATASETD_NO_UNROLL
    for (int s = team_.rank(); s < field_.num_steps; s += team_.size()) {
      DrawSequenceStep(field_.steps[s], length, program_.seed, batch.epoch,
                       draw_index, &state_.drawn[s]);
    }
    data_ = memory_.image[0];
    size_ = field_.in_width;
    const int64_t size =
        is_cropped ? int64_t{crop.num_steps} * field_.step_elements : size_;
    LoadFloats(team_, crop.data, field_.in_dtype, size, data_);
    Fill(size);
    team_.Sync();
    DATASETD_NO_UNROLL
    for (int s = 0; s < field_.num_steps; ++s) {
      if (!state_.drawn[s].is_applied) continue;
      if (!team_.GoesOn()) return false;
      const DrawKey key = {program_.seed, batch.epoch, draw_index,
                           field_.steps[s].op_index};
      if (!RunStep(field_.steps[s], state_.drawn[s], key)) return false;
      team_.Sync();
    }
    const int64_t size_bytes = DtypeSizeBytes(field_.out_dtype);
    Store(batch.slot + field_.offset_bytes + index * size_ * size_bytes);
    // The next row overwrites what the steps were drawn to be.
    team_.Sync();
    return true;
  }

 private:
  // Sums that an energy is added up in.
  static constexpr int kEnergyLanes = 256;

  // Calls visit(i) for the elements of this rank.
  template <typename Visit>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitElements(
      const Visit& visit) const {
    DATASETD_NO_UNROLL
    for (int64_t i = team_.rank(); i < size_; i += team_.size()) visit(i);
  }

  // Fills the row behind the first `begin` elements.
  DATASETD_HOST_DEVICE void Fill(int64_t begin) const {
    const float fill = FloatFromBits(static_cast<uint32_t>(field_.fill));
    float* const to = data_;
    DATASETD_NO_UNROLL
    for (int64_t i = begin + team_.rank(); i < size_; i += team_.size()) {
      to[i] = fill;
    }
  }

  DATASETD_HOST_DEVICE void Store(uint8_t* to) const {
    const float* const from = data_;
    const Dtype dtype = field_.out_dtype;
    const int size_bytes = DtypeSizeBytes(dtype);
    if (dtype == Dtype::kFloat32) {
      VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
        StoreAs(to, i, CanonicalFloat(from[i]));
      });
      return;
    }
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      datasetd::StoreBits(to, size_bytes, i, RoundedBits(from[i], dtype));
    });
  }

  DATASETD_HOST_DEVICE bool RunStep(const Step& step, const StepDraw& drawn,
                                    const DrawKey& key) {
    float* const data = data_;
    switch (drawn.kind) {
      case StepKind::kValue: {
        const float divisor = ParamsAs<ValueOp>(step).divisor;
        VisitElements([&](int64_t i)
                          DATASETD_TEAM_ATTR { data[i] /= divisor; });
        break;
      }
      case StepKind::kVol: {
        const float gain = drawn.As<VolDraw>().gain;
        VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
          const float x = data[i] * gain;
          const float low = x < -1.0f ? -1.0f : x;
          data[i] = low > 1.0f ? 1.0f : low;
        });
        break;
      }
      case StepKind::kGain: {
        const float factor = drawn.As<GainDraw>().factor;
        VisitElements([&](int64_t i) DATASETD_TEAM_ATTR { data[i] *= factor; });
        break;
      }
      case StepKind::kPolarityInversion:
        VisitElements([&](int64_t i) DATASETD_TEAM_ATTR { data[i] *= -1.0f; });
        break;
      case StepKind::kNormalizeSequence:
        Normalize(step, drawn.As<NormalizeSequenceDraw>());
        break;
      case StepKind::kShift:
        ShiftBy(drawn.As<ShiftDraw>(), step.out_channels);
        break;
      case StepKind::kAddNoise:
        return AddNoise(step, drawn.As<AddNoiseDraw>());
      case StepKind::kMelSpectrogram:
        return MakeMel(step, drawn.As<MelSpectrogramDraw>());
      case StepKind::kAmplitudeToDB:
        MakeDecibels(drawn.As<AmplitudeToDBDraw>());
        break;
      case StepKind::kTimeMasking:
        Mask<false>(step, drawn.As<TimeMaskingDraw>(), key);
        break;
      case StepKind::kFrequencyMasking:
        Mask<true>(step, drawn.As<FrequencyMaskingDraw>(), key);
        break;
      default:
        break;
    }
    return true;
  }

  DATASETD_HOST_DEVICE void Normalize(const Step& step,
                                      const NormalizeSequenceDraw& draw) const {
    float* const data = data_;
    if (draw.num_channels == 0) {
      const float mean = draw.mean[0];
      const float std = draw.std[0];
      VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
        data[i] = (data[i] - mean) / std;
      });
      return;
    }
    const int32_t channels = step.out_channels;
    const int64_t plane =
        draw.is_planar ? int64_t{step.out_height} * step.out_width : 1;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      const auto c =
          static_cast<int32_t>(i / plane % channels) - draw.first_channel;
      if (c < 0 || c >= draw.num_channels) return;
      data[i] = (data[i] - draw.mean[c]) / draw.std[c];
    });
  }

  DATASETD_HOST_DEVICE float* OtherImage() const {
    return data_ == memory_.image[0] ? memory_.image[1] : memory_.image[0];
  }

  // Moves the first steps of a waveform [.., channels].
  DATASETD_HOST_DEVICE void ShiftBy(const ShiftDraw& draw, int32_t channels) {
    const float* const from = data_;
    float* const to = OtherImage();
    const int64_t size = int64_t{draw.length} * channels;
    int64_t distance = int64_t{draw.steps} * channels;
    const bool rolls = draw.rolls;
    // As often as a short row needs.
    if (rolls && size > 0) distance %= size;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      int64_t at = i - distance;
      const bool is_inside = at >= 0 && at < size;
      at = at < 0 ? at + size : at >= size ? at - size : at;
      to[i] = i >= size ? from[i] : is_inside || rolls ? from[at] : 0.0f;
    });
    data_ = to;
  }

  // Loads as many steps of the noise as the waveform has, into the other image.
  DATASETD_HOST_DEVICE void LoadNoise(const AddNoiseParams& params,
                                      const AddNoiseDraw& draw) const {
    float* const to = OtherImage();
    const int64_t channels = params.num_channels;
    const int64_t size = draw.steps * channels;
    const int64_t first = draw.first_step * channels;
    const int64_t all = draw.noise_steps * channels;
    const int64_t period = size < all ? size : all;
    // From the first step to the end, and on from the beginning.
    const int64_t before_end = all - first < period ? all - first : period;
    const int64_t offset = first * DtypeSizeBytes(params.dtype);
    DATASETD_NO_UNROLL
    for (int part = 0; part < 2; ++part) {
      LoadFloats(team_, draw.data + (part == 0 ? offset : 0), params.dtype,
                 part == 0 ? before_end : period - before_end,
                 to + (part == 0 ? 0 : before_end));
    }
    team_.Sync();
    if (period == size) return;
    DATASETD_NO_UNROLL
    for (int64_t i = period + team_.rank(); i < size; i += team_.size()) {
      to[i] = to[i % period];
    }
    team_.Sync();
  }

  // Sums of squares of every kEnergyLanes-th of `steps` elements. All teams add
  // in this order.
  DATASETD_HOST_DEVICE void SumSquares(const float* from, int32_t stride,
                                       int32_t steps, double* sums) const {
    const auto square = [&](int32_t t) DATASETD_TEAM_ATTR {
      const auto x = static_cast<double>(from[int64_t{t} * stride]);
      return x * x;
    };
    if constexpr (Team::kHasVectors) {
      for (int lane = 0; lane < kEnergyLanes; ++lane) sums[lane] = 0.0;
      for (int32_t first = 0; first < steps; first += kEnergyLanes) {
        const int count =
            steps - first < kEnergyLanes ? steps - first : kEnergyLanes;
        for (int lane = 0; lane < count; ++lane) {
          sums[lane] += square(first + lane);
        }
      }
    } else {
      DATASETD_NO_UNROLL
      for (int lane = team_.rank(); lane < kEnergyLanes; lane += team_.size()) {
        double sum = 0.0;
        DATASETD_NO_UNROLL
        for (int64_t t = lane; t < steps; t += kEnergyLanes) {
          sum += square(static_cast<int32_t>(t));
        }
        sums[lane] = sum;
      }
    }
  }

  // A waveform [.., channels]. All ranks call it.
  DATASETD_HOST_DEVICE bool AddNoise(const Step& step,
                                     const AddNoiseDraw& draw) const {
    if (draw.steps == 0 || draw.noise_steps == 0) return true;
    const auto& params = ParamsAs<AddNoiseParams>(step);
    LoadNoise(params, draw);
    const int32_t channels = step.out_channels;
    const int32_t noise_channels = params.num_channels;
    static_assert(2 * kEnergyLanes * sizeof(double) <=
                  sizeof(state_.statistic));
    auto* const sums = reinterpret_cast<double*>(state_.statistic);
    double* const noise_sums = sums + kEnergyLanes;
    DATASETD_NO_UNROLL
    for (int32_t c = 0; c < channels; ++c) {
      if (!team_.GoesOn()) return false;
      float* const data = data_ + c;
      const float* const noise = OtherImage() + (noise_channels == 1 ? 0 : c);
      SumSquares(data, channels, draw.steps, sums);
      SumSquares(noise, noise_channels, draw.steps, noise_sums);
      team_.Sync();
      DATASETD_NO_UNROLL
      for (int half = kEnergyLanes / 2; half > 0; half /= 2) {
        DATASETD_NO_UNROLL
        for (int lane = team_.rank(); lane < half; lane += team_.size()) {
          sums[lane] += sums[lane + half];
          noise_sums[lane] += noise_sums[lane + half];
        }
        team_.Sync();
      }
      const float scale = NoiseScale(*sums, *noise_sums, draw.decibels);
      if (scale != 0.0f) {
        DATASETD_NO_UNROLL
        for (int64_t t = team_.rank(); t < draw.steps; t += team_.size()) {
          data[t * channels] += scale * noise[t * noise_channels];
        }
      }
      // The next channel's sums are in the same place.
      team_.Sync();
    }
    return true;
  }

  // Draws do not alter the op, so that the tables stay.
  DATASETD_HOST_DEVICE bool MakeMel(const Step& step,
                                    const MelSpectrogramDraw& mel) {
    const MelSpectrogramMaker<Team> maker(team_, mel, memory_);
    if (!has_tables_) maker.MakeTables();
    has_tables_ = true;
    float* const to = OtherImage();
    const bool is_done = maker.Run({data_, step.in_width, step.out_channels},
                                   step.out_width, to);
    data_ = to;
    size_ = int64_t{step.out_channels} * step.out_height * step.out_width;
    return is_done;
  }

  // A float's bits as an integer that sorts as the floats do, NaN last.
  static DATASETD_HOST_DEVICE uint32_t SortKey(float x) {
    const uint32_t bits = FloatBits(CanonicalFloat(x));
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }

  DATASETD_HOST_DEVICE void MakeDecibels(const AmplitudeToDBDraw& draw) const {
    float* const data = data_;
    const float multiplier = draw.multiplier;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      const float x = data[i] < kMinAmplitude ? kMinAmplitude : data[i];
      data[i] = multiplier * Log10(x);
    });
    if (draw.top_db < 0.0f) return;
    auto* const largest = reinterpret_cast<uint32_t*>(state_.statistic);
    if (team_.rank() == 0) *largest = 0;
    team_.Sync();
    uint32_t own = 0;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      const uint32_t key = SortKey(data[i]);
      own = key > own ? key : own;
    });
    Team::Atomics::Max(largest, own);
    team_.Sync();
    const uint32_t bits = *largest;
    const float floor =
        FloatFromBits(bits >> 31 != 0 ? bits & 0x7FFFFFFFu : ~bits) -
        draw.top_db;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      data[i] = data[i] >= floor ? data[i] : floor;
    });
  }

  // Masks a spectrogram.
  template <bool kOfFrequencies>
  DATASETD_HOST_DEVICE void Mask(const Step& step, const AxisMaskDraw& draw,
                                 const DrawKey& key) const {
    const int32_t height = step.out_height;
    const int32_t width = step.out_width;
    const float value = draw.value;
    DATASETD_NO_UNROLL
    for (int32_t c = 0; c < step.out_channels; ++c) {
      AxisMask mask = MaskOf(draw, key, c);
      mask.begin = mask.begin < 0 ? 0 : mask.begin;
      mask.end = mask.end > draw.size ? draw.size : mask.end;
      const int32_t first_row = kOfFrequencies ? mask.begin : 0;
      const int32_t end_row = kOfFrequencies ? mask.end : height;
      const int32_t first = kOfFrequencies ? 0 : mask.begin;
      const int32_t end = kOfFrequencies ? draw.frames : mask.end;
      DATASETD_NO_UNROLL
      for (int32_t y = first_row; y < end_row; ++y) {
        float* const row = data_ + (int64_t{c} * height + y) * width;
        DATASETD_NO_UNROLL
        for (int32_t x = first + team_.rank(); x < end; x += team_.size()) {
          row[x] = value;
        }
      }
    }
  }

  const Team team_;
  const AugmentProgram& program_;
  const FieldProgram& field_;
  const ChainMemory memory_;
  ChainState& state_;
  float* data_ = nullptr;  // the sequence after the steps so far
  int64_t size_ = 0;       // its elements
  bool has_tables_ = false;
};

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_SEQUENCE_EXECUTOR_H_
