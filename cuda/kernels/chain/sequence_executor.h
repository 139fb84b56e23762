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
    DATASETD_NO_UNROLL
    for (int s = team_.rank(); s < field_.num_steps; s += team_.size()) {
      DrawSequenceStep(field_.steps[s], program_.seed, batch.epoch, draw_index,
                       &state_.drawn[s]);
    }
    data_ = memory_.image[0];
    size_ = field_.in_width;
    if (field_.crop_kind == CropKind::kNone) {
      Load(SampleData(program_.mixture, field_, batch.indices[index]));
    } else {
      LoadCrop(CropRow(program_, field_, batch, index));
    }
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
  // Calls visit(i) for the elements of this rank.
  template <typename Visit>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitElements(
      const Visit& visit) const {
    DATASETD_NO_UNROLL
    for (int64_t i = team_.rank(); i < size_; i += team_.size()) visit(i);
  }

  template <typename T>
  DATASETD_HOST_DEVICE void LoadAll(const uint8_t* from) const {
    float* const to = data_;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      to[i] = static_cast<float>(LoadAs<T>(from, i));
    });
  }

  DATASETD_HOST_DEVICE void Load(const uint8_t* from) const {
    float* const to = data_;
    switch (field_.in_dtype) {
      case Dtype::kUint8:
        return LoadAll<uint8_t>(from);
      case Dtype::kInt8:
        return LoadAll<int8_t>(from);
      case Dtype::kInt16:
        return LoadAll<int16_t>(from);
      case Dtype::kUint16:
        return LoadAll<uint16_t>(from);
      case Dtype::kInt32:
        return LoadAll<int32_t>(from);
      case Dtype::kUint32:
        return LoadAll<uint32_t>(from);
      case Dtype::kInt64:
        return LoadAll<int64_t>(from);
      case Dtype::kFloat32:
        return LoadAll<float>(from);
      case Dtype::kFloat64:
        return LoadAll<double>(from);
      case Dtype::kFloat16:
        return VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
          to[i] = Float16ToFloat(LoadAs<uint16_t>(from, i));
        });
      case Dtype::kBfloat16:
        return VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
          to[i] = FloatFromBits(uint32_t{LoadAs<uint16_t>(from, i)} << 16);
        });
    }
  }

  // Loads the steps that the row has of its sample, and behind them the fill.
  DATASETD_HOST_DEVICE void LoadCrop(const RowCrop& crop) {
    const int64_t size = size_;
    size_ = int64_t{crop.num_steps} * field_.step_elements;
    Load(crop.data);
    const float fill = FloatFromBits(static_cast<uint32_t>(field_.fill));
    float* const to = data_;
    DATASETD_NO_UNROLL
    for (int64_t i = size_ + team_.rank(); i < size; i += team_.size()) {
      to[i] = fill;
    }
    size_ = size;
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
        ShiftBy(drawn.As<ShiftDraw>(), step.out_width, step.out_channels);
        break;
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

  // A waveform [length, channels].
  DATASETD_HOST_DEVICE void ShiftBy(const ShiftDraw& draw, int32_t length,
                                    int32_t channels) {
    const float* const from = data_;
    float* const to = OtherImage();
    const int64_t size = int64_t{length} * channels;
    const int64_t distance = int64_t{draw.steps} * channels;
    const bool rolls = draw.rolls;
    VisitElements([&](int64_t i) DATASETD_TEAM_ATTR {
      int64_t at = i - distance;
      const bool is_inside = at >= 0 && at < size;
      at = at < 0 ? at + size : at >= size ? at - size : at;
      to[i] = is_inside || rolls ? from[at] : 0.0f;
    });
    data_ = to;
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
    const float value = draw.params.value;
    DATASETD_NO_UNROLL
    for (int32_t c = 0; c < step.out_channels; ++c) {
      AxisMask mask = MaskOf(draw, key, c);
      mask.begin = mask.begin < 0 ? 0 : mask.begin;
      mask.end = mask.end > draw.size ? draw.size : mask.end;
      const int32_t first_row = kOfFrequencies ? mask.begin : 0;
      const int32_t end_row = kOfFrequencies ? mask.end : height;
      const int32_t first = kOfFrequencies ? 0 : mask.begin;
      const int32_t end = kOfFrequencies ? width : mask.end;
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
