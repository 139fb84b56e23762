#include "server/core/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"
#include "server/core/mask_transform.h"
#include "server/core/ops/colour_ops.h"
#include "server/core/ops/erase_ops.h"
#include "server/core/ops/image_compiler.h"
#include "server/core/ops/move_ops.h"
#include "server/core/ops/number_ops.h"
#include "server/core/ops/resample_ops.h"
#include "server/core/require.h"

namespace datasetd {
namespace {

bool IsKnown(Dtype dtype) { return DtypeSizeBytes(dtype) != 0; }

bool IsInteger(Dtype dtype) {
  return IsKnown(dtype) && !IsFloatingPoint(dtype);
}

template <typename Op>
inline constexpr bool kIsBatchOp =
    std::is_same_v<Op, MixUpSpec> || std::is_same_v<Op, CutMixSpec>;

// Compiles the ops of one image field, in order.
class PipelineCompiler {
 public:
  PipelineCompiler(FieldProgram* program, bool is_mask, int field_index)
      : image_(program, is_mask),
        field_index_(static_cast<uint32_t>(field_index)) {}

  // Errors lack the place.
  absl::Status Add(const TransformSpec& transform) {
    if (transform.draw_id > kMaxDrawId) {
      return Invalid(absl::StrCat("draw_id is ", transform.draw_id,
                                  ": it must be within 0..", kMaxDrawId));
    }
    if (next_position_ == kMaxTransforms) {
      return Invalid(absl::StrCat("there can be ", kMaxTransforms,
                                  " transforms, those inside others counted"));
    }
    image_.set_op(next_position_, OpIndex(field_index_, next_position_,
                                          transform.draw_id));
    ++next_position_;
    return std::visit([this](const auto& op) { return Compile(op); },
                      transform.op);
  }

  void Finish() { image_.Finish(); }

 private:
  template <typename Op>
  absl::Status Compile(const Op& op) {
    if constexpr (kIsBatchOp<Op>) {
      return absl::UnimplementedError(
          absl::StrCat("this daemon has no ", Op::kName,
                       ": leave it out, or use a newer daemon"));
    } else {
      return CompileOp(op, image_);
    }
  }

  absl::Status Compile(const RandomApplySpec& op) {
    DATASETD_RETURN_IF_ERROR(image_.BeginGroup(op.p));
    for (size_t i = 0; i < op.transforms.size(); ++i) {
      const absl::Status status = Add(op.transforms[i]);
      if (!status.ok()) {
        return absl::Status(
            status.code(),
            absl::StrCat("transforms[", i, "] ",
                         TransformName(op.transforms[i]), ": ",
                         status.message()));
      }
    }
    return image_.EndGroup();
  }

  ImageCompiler image_;
  const uint32_t field_index_;
  // In depth-first order: an op inside another counts on.
  uint32_t next_position_ = 0;
};

absl::Status StartImage(const FieldSpec& field, FieldProgram& program) {
  const std::vector<int64_t>& shape = field.shape;
  if (shape.size() != 2 && shape.size() != 3) {
    return Invalid(absl::StrCat("an image has shape [H, W, C] or [H, W], not ",
                                shape.size(), " dimensions"));
  }
  const int64_t channels = shape.size() == 3 ? shape[2] : 1;
  if (channels < 1 || channels > kMaxChannels) {
    return Invalid(absl::StrCat("the image has ", channels,
                                " channels; it can have 1 to ", kMaxChannels));
  }
  if (shape[0] < 1 || shape[1] < 1 ||
      !FitsInSample(shape[0], shape[1], channels)) {
    return Invalid(absl::StrCat("the image is ", SizeText(shape[0], shape[1]),
                                " with ", channels,
                                " channels; it can have 1 to ", kMaxElements,
                                " elements"));
  }
  if (field.dtype != Dtype::kUint8 && !IsKernelFloat(field.dtype)) {
    return Invalid(absl::StrCat(
        "images are uint8, float16, bfloat16 or float32 in memory, not ",
        DtypeName(field.dtype), ": convert the source"));
  }
  program.is_image = true;
  program.in_height = static_cast<int32_t>(shape[0]);
  program.in_width = static_cast<int32_t>(shape[1]);
  program.channels = static_cast<int32_t>(channels);
  return absl::OkStatus();
}

absl::Status StartOther(const FieldSpec& field, FieldProgram& program) {
  int64_t num_elements = 1;
  for (int64_t extent : field.shape) {
    if (extent < 1 || extent > kMaxElements / num_elements) {
      return Invalid(
          absl::StrCat("a sample must have 1 to ", kMaxElements, " elements"));
    }
    num_elements *= extent;
  }
  if (!IsKnown(field.dtype)) return Invalid("the dtype is not set");
  program.is_image = false;
  program.in_height = 1;
  program.in_width = static_cast<int32_t>(num_elements);
  program.channels = 1;
  program.layout = Layout::kNchw;
  return absl::OkStatus();
}

// The dtype of a field that is no image after its ToDtype.
absl::StatusOr<Dtype> OtherDtype(Dtype from, const TransformSpec& op) {
  const auto* to_dtype = std::get_if<ToDtypeSpec>(&op.op);
  if (to_dtype == nullptr) {
    return Invalid("the field is not an image: it can only have a ToDtype");
  }
  const Dtype to = to_dtype->dtype;
  if (!IsKnown(to)) return Invalid("the dtype is not set");
  if (to_dtype->scale) {
    return Invalid(
        "scale is for images, and the field is not one: set it to False");
  }
  if (to == from || IsKernelFloat(to) ||
      (to == Dtype::kInt64 && IsInteger(from))) {
    return to;
  }
  return Invalid(absl::StrCat(
      "a field of ", DtypeName(from), " cannot become ", DtypeName(to),
      IsInteger(from) ? ": it can become int64, " : ": it can become ",
      "float16, bfloat16 or float32"));
}

absl::Status At(const FieldSpec& field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("field '", field.name,
                                                  "': ", status.message()));
}

absl::Status At(const FieldSpec& field, size_t position,
                const TransformSpec& op, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("field '", field.name, "', transforms[", position, "] ",
                   TransformName(op), ": ", status.message()));
}

}  // namespace

absl::StatusOr<FieldProgram> CompileField(
    const FieldSpec& field, int field_index,
    absl::Span<const TransformSpec> ops, Layout layout) {
  Require(field_index >= 0 && field_index < kMaxFields,
          "the index of a field is below kMaxFields");
  if (ops.size() > kMaxTransforms) {
    return At(field, Invalid(absl::StrCat(ops.size(),
                                          " transforms; there can be ",
                                          kMaxTransforms)));
  }
  FieldProgram program = {};
  program.in_dtype = field.dtype;
  if (!field.is_image) {
    DATASETD_RETURN_IF_ERROR(At(field, StartOther(field, program)));
    program.out_height = 1;
    program.out_width = program.in_width;
    program.out_channels = 1;
    program.out_dtype = field.shape.empty() && IsInteger(field.dtype)
                            ? Dtype::kInt64
                            : field.dtype;
    for (size_t i = 0; i < ops.size(); ++i) {
      absl::StatusOr<Dtype> dtype = OtherDtype(field.dtype, ops[i]);
      if (!dtype.ok()) return At(field, i, ops[i], dtype.status());
      if (i > 0) {
        return At(field, i, ops[i],
                  Invalid("one ToDtype is enough: leave out one"));
      }
      program.out_dtype = *dtype;
    }
    return program;
  }
  if (layout != Layout::kNchw && layout != Layout::kNhwc) {
    return At(field, Invalid("the layout is unknown: use NCHW or NHWC"));
  }
  DATASETD_RETURN_IF_ERROR(At(field, StartImage(field, program)));
  program.layout = layout;
  PipelineCompiler compiler(&program, field.is_mask, field_index);
  for (size_t i = 0; i < ops.size(); ++i) {
    const absl::StatusOr<TransformSpec> op =
        field.is_mask ? ForMask(ops[i]) : ops[i];
    DATASETD_RETURN_IF_ERROR(At(field, i, ops[i], op.status()));
    DATASETD_RETURN_IF_ERROR(At(field, i, ops[i], compiler.Add(*op)));
  }
  compiler.Finish();
  return program;
}

bool IsDeterministic(absl::Span<const TransformSpec> ops) {
  return std::none_of(ops.begin(), ops.end(), IsRandom);
}

}  // namespace datasetd
