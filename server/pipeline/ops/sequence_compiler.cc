#include "server/pipeline/ops/sequence_compiler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/mel_tables.h"
#include "cuda/kernels/math/elementary.h"
#include "proto/same_values.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
DATASETD_SAME_VALUE(FramePadMode::kConstant, FRAME_PAD_MODE_CONSTANT);
DATASETD_SAME_VALUE(FramePadMode::kReplicate, FRAME_PAD_MODE_REPLICATE);
DATASETD_SAME_VALUE(FramePadMode::kReflect, FRAME_PAD_MODE_REFLECT);
DATASETD_SAME_VALUE(FramePadMode::kCircular, FRAME_PAD_MODE_CIRCULAR);

namespace {

// The ratio of amplitudes, the same on all machines.
float RatioOfDecibels(double decibels) {
  constexpr double kLn10 = 0x1.26bb1bbb55516p+1;
  return static_cast<float>(Exp(decibels * kLn10 / 20.0));
}

bool IsWhole(double x) { return x == std::trunc(x); }

// Sums of a transform of `length`, for each of its elements.
int64_t SumsPerElement(int32_t length) {
  int64_t operations = 0;
  for (int32_t done = 1; done < length;) {
    const int32_t radix = NextRadix(length / done);
    operations += radix == 4 ? 6 : 4 * radix;
    done *= radix;
  }
  return operations;
}

int64_t OperationsPerFrame(const MelSpectrogramParams& mel) {
  const int64_t length = FourierLength(mel);
  return SaturatingSum(
      SaturatingMultiply(length, 8 + SumsPerElement(FourierLength(mel))),
      SaturatingMultiply(NumBins(mel), mel.power == 2.0 ? 14 : 60),
      2 * MelWeightElements(mel));
}

}  // namespace

float LargestInteger(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return 255.0f;
    case Dtype::kInt8:
      return 127.0f;
    case Dtype::kInt16:
      return 32767.0f;
    case Dtype::kUint16:
      return 65535.0f;
    case Dtype::kInt32:
      return 2147483647.0f;
    case Dtype::kUint32:
      return 4294967295.0f;
    default:
      return 9223372036854775807.0f;
  }
}

SequenceCompiler::SequenceCompiler(const FieldSpec& field,
                                   const TransformLimits& limits,
                                   const NoiseFinder& noise,
                                   FieldProgram* program)
    : field_(field),
      limits_(limits),
      find_noise_(noise),
      program_(*program),
      width_(program->in_width),
      dtype_(field.dtype),
      operations_(program->in_width) {
  scratch_.image_elements[0] = width_;
}

absl::Status SequenceCompiler::Add(const v1::Transform& op, uint16_t position,
                                   uint32_t op_index) {
  position_ = position;
  op_index_ = op_index;
  switch (OptionsOf(op).family()) {
    case v1::OP_FAMILY_DTYPE:
      return op.has_to_dtype() ? AddToDtype(op.to_dtype())
                               : AddNormalize(op.normalize());
    case v1::OP_FAMILY_SEQUENCE:
      return AddSequenceOp(op);
    default:
      return Invalid(absl::StrCat(
          "the op is for images, and the field is not an image: it can have "
          "ToDtype, Normalize, RandomApply and ops on sequences, such as Vol "
          "and MelSpectrogram. For ops on images make it one where it is "
          "loaded: push_dataset(fields={'",
          field_.name,
          "': 'image'}) of (H, W) or (H, W, C), 'image_chw' of (C, H, W), or "
          "options={'images': '",
          field_.name, "'} of npy"));
  }
}

absl::Status SequenceCompiler::AddSequenceOp(const v1::Transform& op) {
  DATASETD_RETURN_IF_ERROR(NeedFloat());
  switch (op.op_case()) {
    case v1::Transform::kVol:
      return AddVol(op.vol());
    case v1::Transform::kGain:
      return AddGain(op.gain());
    case v1::Transform::kPolarityInversion:
      DATASETD_RETURN_IF_ERROR(NeedWaveform());
      return Append(StepKind::kPolarityInversion, PolarityInversionParams{},
                    op.polarity_inversion().p(), elements());
    case v1::Transform::kShift:
      return AddShift(op.shift());
    case v1::Transform::kAddNoise:
      return AddAddNoise(op.add_noise());
    case v1::Transform::kMelSpectrogram:
      return AddMel(op.mel_spectrogram());
    case v1::Transform::kAmplitudeToDb: {
      const v1::AmplitudeToDB& db = op.amplitude_to_db();
      const bool is_power = db.stype() == v1::AMPLITUDE_TYPE_POWER;
      const AmplitudeToDBParams params = {
          is_power ? 10.0f : 20.0f,
          db.has_top_db() ? static_cast<float>(db.top_db()) : -1.0f};
      return Append(StepKind::kAmplitudeToDB, params, 1.0,
                    SaturatingMultiply(elements(), 20));
    }
    case v1::Transform::kTimeMasking: {
      DATASETD_RETURN_IF_ERROR(NeedSpectrogram());
      const v1::TimeMasking& mask = op.time_masking();
      return AddMask<TimeMaskingParams>(StepKind::kTimeMasking,
                                        mask.time_mask_param(), mask.p(),
                                        mask.iid_masks(), mask.mask_value());
    }
    case v1::Transform::kFrequencyMasking: {
      DATASETD_RETURN_IF_ERROR(NeedSpectrogram());
      const v1::FrequencyMasking& mask = op.frequency_masking();
      return AddMask<FrequencyMaskingParams>(
          StepKind::kFrequencyMasking, mask.freq_mask_param(), 1.0,
          mask.iid_masks(), mask.mask_value());
    }
    default:
      return NoCompiler(op);
  }
}

absl::Status SequenceCompiler::AddToDtype(const v1::ToDtype& op) {
  const Dtype dtype = ToDtypeOf(op);
  if (dtype == dtype_) return absl::OkStatus();
  if (!IsKernelFloat(dtype)) {
    return Invalid(
        absl::StrCat("a field with other ops cannot become ", DtypeName(dtype),
                     ": it can become float16, bfloat16 or float32"));
  }
  if (op.scale() && !IsFloatingPoint(dtype_)) {
    ValueOp value_op = {};
    value_op.kind = ValueOpKind::kDivide;
    value_op.divisor = LargestInteger(dtype_);
    DATASETD_RETURN_IF_ERROR(
        Append(StepKind::kValue, value_op, 1.0, elements()));
  }
  dtype_ = dtype;
  return absl::OkStatus();
}

absl::Status SequenceCompiler::NeedFloat() const {
  if (IsKernelFloat(dtype_)) return absl::OkStatus();
  return Invalid(absl::StrCat(
      "it needs float16, bfloat16 or float32, and the field is ",
      DtypeName(dtype_), " here: put ToDtype(\"float32\"",
      IsFloatingPoint(dtype_) ? "" : ", scale=True", ") before it"));
}

std::string SequenceCompiler::ShapeText() const {
  if (form_ == Form::kSpectrogram) {
    return absl::StrCat("[", channels_ > 1 ? absl::StrCat(channels_, ", ") : "",
                        height_, ", ", width_, "]");
  }
  return absl::StrCat("[", absl::StrJoin(field_.shape, ", "), "]");
}

absl::Status SequenceCompiler::NeedWaveform() {
  const size_t rank = field_.shape.size();
  if (form_ == Form::kSpectrogram) {
    return Invalid(
        absl::StrCat("it is for waveforms, and the field is a spectrogram ",
                     ShapeText(), " here: put it before MelSpectrogram"));
  }
  if (rank < 1 || rank > 2) {
    return Invalid(absl::StrCat(
        "it is for waveforms, [T] or [T, C], and a sample of the field is ",
        ShapeText(), ": push it in that shape"));
  }
  form_ = Form::kWaveform;
  width_ = field_.shape[0];
  channels_ = rank == 2 ? field_.shape[1] : 1;
  return absl::OkStatus();
}

absl::Status SequenceCompiler::NeedSpectrogram() {
  if (form_ == Form::kSpectrogram) return absl::OkStatus();
  const size_t rank = field_.shape.size();
  if (form_ == Form::kWaveform || rank < 2 || rank > 3) {
    return Invalid(absl::StrCat(
        "it is for spectrograms, [F, T] or [C, F, T], and the field is ",
        form_ == Form::kWaveform ? "a waveform " : "", ShapeText(),
        " here: put MelSpectrogram before it"));
  }
  form_ = Form::kSpectrogram;
  channels_ = rank == 3 ? field_.shape[0] : 1;
  height_ = field_.shape[rank - 2];
  width_ = field_.shape[rank - 1];
  return absl::OkStatus();
}

absl::Status SequenceCompiler::AddNormalize(const v1::Normalize& op) {
  DATASETD_RETURN_IF_ERROR(NeedFloat());
  const int count = std::max(op.mean_size(), op.std_size());
  if (count > 1 && form_ == Form::kAny) {
    DATASETD_RETURN_IF_ERROR(field_.shape.size() == 3 ? NeedSpectrogram()
                                                      : NeedWaveform());
  }
  for (const auto& [name, size] :
       {std::pair("mean", op.mean_size()), std::pair("std", op.std_size())}) {
    if (size == 1 || size == channels_) continue;
    return Invalid(absl::StrCat(name, " has ", size, " values, and the field ",
                                ShapeText(), " has ", channels_,
                                channels_ == 1 ? " channel" : " channels",
                                ": give one value, or one per channel"));
  }
  for (int c = 0; c < op.std_size(); ++c) {
    if (static_cast<float>(op.std(c)) == 0.0f) {
      return Invalid(absl::StrCat("std is 0 in channel ", c,
                                  ": it must not be, as float32 either"));
    }
  }
  // A step for each few channels.
  const bool has_one = count == 1;
  for (int first = 0; first < count; first += kMaxNormalizedChannels) {
    NormalizeSequenceParams params = {};
    params.first_channel = first;
    const int size = std::min(count - first, kMaxNormalizedChannels);
    params.num_channels = has_one ? 0 : size;
    params.is_planar = form_ == Form::kSpectrogram ? 1 : 0;
    for (int c = 0; c < size; ++c) {
      params.mean[c] =
          static_cast<float>(op.mean(op.mean_size() == 1 ? 0 : first + c));
      params.std[c] =
          static_cast<float>(op.std(op.std_size() == 1 ? 0 : first + c));
    }
    DATASETD_RETURN_IF_ERROR(Append(StepKind::kNormalizeSequence, params, 1.0,
                                    SaturatingMultiply(elements(), 4)));
  }
  return absl::OkStatus();
}

absl::Status SequenceCompiler::AddVol(const v1::Vol& op) {
  DATASETD_RETURN_IF_ERROR(NeedWaveform());
  const bool is_db = op.gain_type() == v1::GAIN_TYPE_DB;
  const double gain = op.gain();
  const bool is_power = op.gain_type() == v1::GAIN_TYPE_POWER;
  if (gain < 0.0 && !is_db) {
    return Invalid(
        absl::StrCat("gain is ", gain,
                     ": it must be at least 0, unless gain_type is \"db\""));
  }
  if (gain == 0.0 && is_power) {
    return Invalid("gain is 0: a ratio of powers must be above 0");
  }
  VolParams params = {static_cast<float>(gain)};
  if (is_db) params.gain = RatioOfDecibels(gain);
  if (is_power) params.gain = static_cast<float>(Sqrt(gain));
  return Append(StepKind::kVol, params, 1.0, SaturatingMultiply(elements(), 2));
}

absl::Status SequenceCompiler::AddGain(const v1::Gain& op) {
  DATASETD_RETURN_IF_ERROR(NeedWaveform());
  if (op.min_gain_in_db() > op.max_gain_in_db()) {
    return Invalid(absl::StrCat("min_gain_in_db is ", op.min_gain_in_db(),
                                ", which is above max_gain_in_db, ",
                                op.max_gain_in_db(), ": exchange them"));
  }
  const GainParams params = {static_cast<float>(op.min_gain_in_db()),
                             static_cast<float>(op.max_gain_in_db())};
  return Append(StepKind::kGain, params, op.p(), elements());
}

absl::Status SequenceCompiler::AddShift(const v1::Shift& op) {
  DATASETD_RETURN_IF_ERROR(NeedWaveform());
  if (op.min_shift() > op.max_shift()) {
    return Invalid(absl::StrCat("min_shift is ", op.min_shift(),
                                ", which is above max_shift, ", op.max_shift(),
                                ": exchange them"));
  }
  const bool is_fraction = op.shift_unit() == v1::SHIFT_UNIT_FRACTION;
  for (const auto& [name, shift] : {std::pair("min_shift", op.min_shift()),
                                    std::pair("max_shift", op.max_shift())}) {
    if (is_fraction && std::abs(shift) > 1.0) {
      return Invalid(absl::StrCat(
          name, " is ", shift,
          ": a fraction must be within -1..1; for a number of steps set "
          "shift_unit to \"samples\""));
    }
    if (!is_fraction &&
        (!IsWhole(shift) || std::abs(shift) > static_cast<double>(width_))) {
      return Invalid(absl::StrCat(
          name, " is ", shift, " samples: it must be a whole number within ",
          -width_, "..", width_, ", the waveform's length"));
    }
  }
  const ShiftParams params = {op.min_shift(), op.max_shift(), is_fraction,
                              op.rollover()};
  scratch_.image_elements[1] = std::max(scratch_.image_elements[1], elements());
  return Append(StepKind::kShift, params, op.p(),
                SaturatingMultiply(elements(), 4));
}

absl::Status SequenceCompiler::AddAddNoise(const v1::AddNoise& op) {
  DATASETD_RETURN_IF_ERROR(NeedWaveform());
  if (!find_noise_) {
    return Invalid("it is for loaders, whose datasets of noise are resident");
  }
  DATASETD_ASSIGN_OR_RETURN(const NoiseField noise,
                            find_noise_(op, field_.name));
  const FieldSpec& spec = noise.spec;
  const std::string what =
      absl::StrCat("field '", spec.name, "' of the noise '", op.noise(), "'");
  const size_t rank = spec.shape.size();
  const int64_t noise_channels = rank == 2 ? spec.shape[1] : 1;
  if (spec.is_image || rank < 1 || rank > 2) {
    return Invalid(absl::StrCat(
        what, " has ", spec.is_image ? "images" : "samples of the shape ",
        spec.is_image ? ""
                      : absl::StrCat("[", absl::StrJoin(spec.shape, ", "), "]"),
        ", and noise is recordings, [T] or [T, C]: push it as such"));
  }
  const bool is_signed_integer =
      spec.dtype == Dtype::kInt8 || spec.dtype == Dtype::kInt16 ||
      spec.dtype == Dtype::kInt32 || spec.dtype == Dtype::kInt64;
  if (!is_signed_integer && !IsFloatingPoint(spec.dtype)) {
    return Invalid(absl::StrCat(what, " is ", DtypeName(spec.dtype),
                                ", which has no negative numbers: push it as "
                                "int16 or float32, around 0"));
  }
  if (noise_channels != 1 && noise_channels != channels_) {
    return Invalid(absl::StrCat(what, " has ", noise_channels,
                                " channels, and the waveform has ", channels_,
                                ": push it with one, or with ", channels_));
  }
  if (noise.num_samples > int64_t{0xFFFFFFFF}) {
    return Invalid(absl::StrCat(what, " has ", noise.num_samples,
                                " samples; at most 2^32 - 1 can be drawn"));
  }
  AddNoiseParams params = {};
  params.low = static_cast<float>(op.snr().min());
  params.high = static_cast<float>(op.snr().max());
  params.source = noise.source;
  params.ragged = noise.ragged;
  params.num_samples = Narrow<uint32_t>(noise.num_samples);
  params.num_channels = Narrow<int32_t>(noise_channels);
  params.dtype = spec.dtype;
  if (!spec.is_packed()) {
    params.sample_steps = Narrow<int32_t>(spec.shape[0]);
    params.sample_stride_bytes = spec.sample_bytes();
  }
  scratch_.image_elements[1] = std::max(scratch_.image_elements[1], elements());
  return Append(StepKind::kAddNoise, params, op.p(),
                SaturatingMultiply(elements(), 12));
}

absl::Status SequenceCompiler::AddMel(const v1::MelSpectrogram& op) {
  DATASETD_RETURN_IF_ERROR(NeedWaveform());
  if (group_.has_value()) {
    return Invalid(
        "it changes the shape of the sample, and a RandomApply must not: take "
        "it out of the RandomApply");
  }
  MelSpectrogramParams mel = {};
  mel.sample_rate = Narrow<int32_t>(op.sample_rate());
  mel.n_fft = Narrow<int32_t>(op.n_fft());
  mel.win_length =
      op.has_win_length() ? Narrow<int32_t>(op.win_length()) : mel.n_fft;
  mel.hop_length = op.has_hop_length() ? Narrow<int32_t>(op.hop_length())
                                       : mel.win_length / 2;
  mel.pad = Narrow<int32_t>(op.pad());
  mel.center = op.center() ? mel.n_fft / 2 : 0;
  mel.n_mels = Narrow<int32_t>(op.n_mels());
  mel.pad_mode = static_cast<FramePadMode>(op.pad_mode());
  mel.is_normalized = op.normalized();
  mel.is_slaney_norm = op.norm() == v1::MEL_NORM_SLANEY;
  mel.is_slaney_scale = op.mel_scale() == v1::MEL_SCALE_SLANEY;
  mel.power = op.power();
  mel.f_min = op.f_min();
  mel.f_max = op.has_f_max() ? op.f_max() : mel.sample_rate / 2;
  if (mel.win_length > mel.n_fft) {
    return Invalid(absl::StrCat("win_length is ", mel.win_length,
                                ": it must be at most n_fft, ", mel.n_fft));
  }
  if (mel.hop_length < 1) {
    return Invalid("hop_length is 0: set it to 1 or more");
  }
  if (mel.f_min >= mel.f_max) {
    return Invalid(absl::StrCat("f_min is ", mel.f_min,
                                " Hz: it must be below f_max, ", mel.f_max));
  }
  for (int32_t i = 0; i <= mel.n_mels; ++i) {
    if (MelCorner(mel, i) < MelCorner(mel, i + 1)) continue;
    return Invalid(absl::StrCat(
        "n_mels is ", mel.n_mels, " from f_min ", mel.f_min, " to f_max ",
        mel.f_max, " Hz, where filters coincide: use fewer filters"));
  }
  const int64_t padded = width_ + 2 * int64_t{mel.pad};
  const int64_t least = mel.center == 0 ? mel.n_fft
                        : mel.pad_mode == FramePadMode::kReflect
                            ? mel.center + 1
                        : mel.pad_mode == FramePadMode::kCircular ? mel.center
                                                                  : 1;
  const int64_t whole = padded + 2 * int64_t{mel.center};
  if (padded < least || whole < mel.n_fft) {
    return Invalid(absl::StrCat("the waveform has ", padded, " steps",
                                mel.pad > 0 ? " with its padding" : "",
                                ", and frames of n_fft = ", mel.n_fft,
                                " need at least ", std::max<int64_t>(least, 1),
                                " of them: use a smaller n_fft"));
  }
  const int64_t frames = 1 + (whole - mel.n_fft) / mel.hop_length;
  program_.frame_hop = mel.hop_length;
  program_.frame_margin = whole - width_ - mel.n_fft;
  if (SaturatingProduct(channels_, mel.n_mels, frames) > kMaxElements) {
    return Invalid(absl::StrCat("it makes [", channels_, ", ", mel.n_mels, ", ",
                                frames, "], more than ", kMaxElements,
                                " elements: use a larger hop_length"));
  }
  form_ = Form::kSpectrogram;
  height_ = mel.n_mels;
  width_ = frames;
  scratch_.image_elements[1] = std::max(scratch_.image_elements[1], elements());
  scratch_.image_elements[0] = std::max(scratch_.image_elements[0], elements());
  scratch_.row_elements = FourierElements(mel);
  scratch_.line_elements = MelTableElements(mel);
  scratch_.tap_elements = MelWeightElements(mel);
  return Append(StepKind::kMelSpectrogram, mel, 1.0,
                SaturatingProduct(channels_, frames, OperationsPerFrame(mel)));
}

template <typename Params>
absl::Status SequenceCompiler::AddMask(StepKind kind, int64_t param, double p,
                                       bool is_iid, double value) {
  if (is_iid && channels_ > kMaxMaskedChannels) {
    return Invalid(absl::StrCat("iid_masks is for up to ", kMaxMaskedChannels,
                                " channels, and the spectrogram has ",
                                channels_, ": set it to False"));
  }
  Params params = {};
  params.longest = Narrow<int32_t>(param);
  params.share = p;
  params.value = static_cast<float>(value);
  params.is_iid = is_iid;
  return Append(kind, params, 1.0, elements());
}

template <typename Params>
absl::Status SequenceCompiler::Append(StepKind kind, const Params& params,
                                      double p, int64_t operations) {
  if (p == 0.0) return absl::OkStatus();
  if (steps_.size() == size_t{kMaxSteps}) {
    return Invalid(absl::StrCat("too many steps: a field can have ", kMaxSteps,
                                "; a Normalize of many channels is one for "
                                "each ",
                                kMaxNormalizedChannels));
  }
  Step step = {};
  step.kind = kind;
  step.position = position_;
  step.op_index = op_index_;
  step.probability = static_cast<float>(p);
  step.group_probability = 1.0f;
  if (group_.has_value()) {
    step.group_op_index = group_->op_index;
    step.group_probability = static_cast<float>(group_->p);
  }
  step.out_height = Narrow<int32_t>(height_);
  step.out_width = Narrow<int32_t>(width_);
  step.out_channels = Narrow<int32_t>(channels_);
  step.in_height = step.out_height;
  step.in_width = step.out_width;
  if (kind == StepKind::kMelSpectrogram) {
    step.in_height = 1;
    step.in_width = Narrow<int32_t>(field_.shape[0]);
  }
  SetParams(params, &step);
  steps_.push_back(step);
  operations_ = SaturatingAdd(operations_, operations);
  return CheckLimits();
}

absl::Status SequenceCompiler::BeginGroup(double p, uint32_t op_index) {
  if (group_.has_value()) {
    return Invalid(
        "a RandomApply inside a RandomApply is not supported: take the inner "
        "one out of it");
  }
  group_ = {op_index, p, steps_.size(), form_, elements(), dtype_};
  return absl::OkStatus();
}

absl::Status SequenceCompiler::EndGroup() {
  const Group group = *group_;
  group_.reset();
  if (dtype_ != group.dtype) {
    return Invalid(
        "its ops change the dtype: applied or not, it must be the same; put "
        "ToDtype outside");
  }
  if (group.p == 0.0) steps_.resize(group.first_step);
  return absl::OkStatus();
}

absl::Status SequenceCompiler::CheckLimits() const {
  if (operations_ > limits_.max_operations) {
    return Invalid(absl::StrCat(
        "with it a sample takes about ", operations_,
        " operations, and transform_limits.max_operations is ",
        limits_.max_operations, ": use shorter samples, or fewer frames"));
  }
  const int64_t scratch_bytes = TeamScratchBytes(scratch_);
  if (scratch_bytes <= limits_.max_scratch_bytes) return absl::OkStatus();
  return Invalid(absl::StrCat(
      "with it a sample takes ", scratch_bytes,
      " bytes of memory between ops, and transform_limits.max_scratch_mib is ",
      limits_.max_scratch_bytes >> 20, ": use shorter samples"));
}

absl::Status SequenceCompiler::Finish() {
  if (!IsKernelFloat(dtype_)) {
    return Invalid(absl::StrCat("it is ", DtypeName(dtype_),
                                " after its ops: add ToDtype(\"float32\")"));
  }
  if (steps_.empty()) {
    Step identity = {};
    identity.kind = StepKind::kIdentity;
    identity.probability = identity.group_probability = 1.0f;
    identity.in_height = identity.out_height = Narrow<int32_t>(height_);
    identity.in_width = identity.out_width = Narrow<int32_t>(width_);
    identity.out_channels = Narrow<int32_t>(channels_);
    steps_.push_back(identity);
  }
  program_.num_steps = Narrow<int32_t>(steps_.size());
  std::copy(steps_.begin(), steps_.end(), program_.steps);
  program_.scratch = scratch_;
  program_.operations = operations_;
  program_.out_channels = Narrow<int32_t>(channels_);
  program_.out_height = Narrow<int32_t>(height_);
  program_.out_width = Narrow<int32_t>(width_);
  program_.out_dtype = dtype_;
  return absl::OkStatus();
}

}  // namespace datasetd
