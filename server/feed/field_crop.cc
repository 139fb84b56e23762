#include "server/feed/field_crop.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/program/value.h"
#include "server/pipeline/ops/image_compiler.h"
#include "server/pipeline/pipeline.h"

namespace datasetd {
namespace {

bool IsFloat(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 ||
         dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
}

bool IsUnsigned(Dtype dtype) {
  return dtype == Dtype::kUint8 || dtype == Dtype::kUint16 ||
         dtype == Dtype::kUint32;
}

// Returns the bits of `fill` as an element of the field.
absl::StatusOr<uint64_t> FillBits(double fill, Dtype dtype,
                                  const FieldSpec& spec) {
  if (IsFloat(dtype)) {
    return CastElementBits(reinterpret_cast<const uint8_t*>(&fill),
                           Dtype::kFloat64, dtype, 0);
  }
  const int num_bits = 8 * DtypeSizeBytes(dtype);
  const double end = std::ldexp(1.0, num_bits - (IsUnsigned(dtype) ? 0 : 1));
  const double begin = IsUnsigned(dtype) ? 0 : -end;
  if (fill == std::floor(fill) && fill >= begin && fill < end) {
    return static_cast<uint64_t>(static_cast<int64_t>(fill));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "fields: crop of '", spec.name, "': fill is ", fill,
      ", and the field is delivered as ", DtypeName(dtype),
      ": give an integer that it holds, or make it a float by ToDtype"));
}

CropKind KindOf(v1::CropPlace place) {
  switch (place) {
    case v1::CROP_PLACE_CENTER:
      return CropKind::kCenter;
    case v1::CROP_PLACE_RANDOM:
      return CropKind::kRandom;
    default:
      return CropKind::kStart;
  }
}

}  // namespace

absl::Status CheckCrop(const v1::FieldOptions& options, const FieldSpec& spec,
                       bool has_windows) {
  if (spec.is_sequence() && (has_windows || !options.has_crop())) {
    return absl::InvalidArgumentError(absl::StrCat(
        has_windows ? "window_order: " : "fields: ", "field '", spec.name,
        "' has sequences of ", spec.smallest.height, " to ",
        spec.largest.height, " steps, ",
        has_windows ? "and windows are of one stream"
                    : "and a batch has one length",
        ": crop each sequence (in Python windows=datasetd.crops(length)), or "
        "choose other fields with field_names, in Python with fields="));
  }
  if (!options.has_crop()) {
    if (options.row_field() != v1::ROW_FIELD_LENGTHS) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("fields: '", spec.name,
                     "' is of lengths, and has no crop whose they are"));
  }
  if (has_windows) {
    return absl::InvalidArgumentError(
        absl::StrCat("window_order: field '", spec.name,
                     "' has a crop, and windows and crops exclude each other"));
  }
  if (!spec.is_image && !spec.shape.empty() && spec.shape.size() <= 2) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "fields: crop of '", spec.name, "': it is ",
      spec.is_image        ? "an image, for which there are ops such as "
                             "RandomCrop"
      : spec.shape.empty() ? "one number"
                           : "an array of more than two dimensions",
      "; a crop is of sequences, [T] or [T, C]"));
}

absl::StatusOr<FieldProgram> CompileCrop(
    const v1::FieldOptions& options, int field_index,
    absl::Span<const v1::Transform> ops, Layout layout,
    const TransformLimits& limits, const NoiseFinder& noise, FieldSpec& spec) {
  const v1::SequenceCrop& crop = options.crop();
  const bool is_sequence = spec.is_sequence();
  const int64_t num_steps = is_sequence ? spec.largest.height : spec.shape[0];
  const int64_t step_elements = spec.shape.size() > 1 ? spec.shape[1] : 1;
  const uint64_t length =
      crop.length() != 0 ? crop.length() : static_cast<uint64_t>(num_steps);
  const auto most = static_cast<uint64_t>(kMaxElements / step_elements);
  if (length > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields: crop of '", spec.name, "': length is ", length,
                     crop.length() == 0 ? ", that of the longest sequence" : "",
                     "; it must be within 1..", most));
  }
  if (!v1::CropPlace_IsValid(crop.place())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: crop of '", spec.name, "': place is ",
        static_cast<int>(crop.place()), "; one of START, CENTER, RANDOM"));
  }
  const bool has_length = options.row_field() == v1::ROW_FIELD_LENGTHS;
  spec.shape[0] = static_cast<int64_t>(length);
  DATASETD_ASSIGN_OR_RETURN(
      FieldProgram program,
      CompileField(spec, field_index, ops, layout, {}, limits,
                   static_cast<int>(options.view()), noise));
  if (options.row_field() != v1::ROW_FIELD_UNSPECIFIED &&
      (!has_length || (!ops.empty() && program.frame_hop == 0))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: '", spec.name, "' has row_field ",
        static_cast<int>(options.row_field()),
        "; with a crop it can be that of lengths, without transforms or with "
        "those that make a spectrogram"));
  }
  if (has_length) {
    const FieldProgram framed = program;
    spec.dtype = Dtype::kInt64;
    spec.shape.clear();
    DATASETD_ASSIGN_OR_RETURN(
        program, CompileField(spec, field_index, {}, layout, {}, limits));
    program.frame_hop = framed.frame_hop;
    program.frame_margin = framed.frame_margin;
  }
  if (ops.empty() && spec.shape.size() == 1 && !IsFloat(spec.dtype)) {
    program.out_dtype = Dtype::kInt64;
  }
  program.crop_kind = KindOf(crop.place());
  program.has_length = has_length;
  program.crop_op_index = kCropOpIndex + options.view();
  program.crop_length = Narrow<int32_t>(length);
  program.step_elements = Narrow<int32_t>(step_elements);
  program.sample_steps = is_sequence ? 0 : Narrow<int32_t>(num_steps);
  if (!has_length) {
    // Ops are applied to the fill, too, as float32.
    DATASETD_ASSIGN_OR_RETURN(
        program.fill,
        FillBits(crop.fill(),
                 program.num_steps > 0 ? Dtype::kFloat32 : program.out_dtype,
                 spec));
  }
  return program;
}

}  // namespace datasetd
