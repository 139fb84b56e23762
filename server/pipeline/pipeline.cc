#include "server/pipeline/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "server/pipeline/ops/image_compiler.h"
#include "server/pipeline/ops/op_compilers.h"
#include "server/pipeline/ops/sequence_compiler.h"

namespace datasetd {
namespace {

bool IsKnown(Dtype dtype) { return DtypeSizeBytes(dtype) != 0; }

bool IsInteger(Dtype dtype) {
  return IsKnown(dtype) && !IsFloatingPoint(dtype);
}

constexpr char kSizeGivers[] =
    "RandomResizedCrop, Resize with height and width, CenterCrop, RandomCrop, "
    "Crop or ResizedCrop";

// For example "10x20 to 30x40 (height x width)": the range of each axis.
std::string RangeText(absl::Span<const SampleSize> sizes) {
  SampleSize low = sizes[0];
  SampleSize high = sizes[0];
  for (const SampleSize& size : sizes) {
    low.height = std::min(low.height, size.height);
    low.width = std::min(low.width, size.width);
    high.height = std::max(high.height, size.height);
    high.width = std::max(high.width, size.width);
  }
  return absl::StrCat(SizeText(low.height, low.width), " to ",
                      SizeText(high.height, high.width), " (height x width)");
}

absl::Status TooManyTransforms() {
  return Invalid(absl::StrCat("there can be ", kMaxTransforms,
                              " transforms, those inside others counted"));
}

// The error of an op inside another.
absl::Status AtInner(int position, const v1::Transform& op,
                     const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("transforms[", position, "] ",
                                   TransformName(op), ": ", status.message()));
}

// Compiles the ops of one image field, in order.
class PipelineCompiler {
 public:
  PipelineCompiler(FieldProgram* program, bool is_mask, int field_index,
                   int view, std::vector<SampleSize> sizes,
                   const TransformLimits& limits)
      : image_(program, is_mask, std::move(sizes), limits),
        field_index_(Narrow<uint32_t>(field_index)),
        view_(Narrow<uint32_t>(view)) {}

  // Errors do not include the position.
  absl::Status Add(const v1::Transform& transform) {
    DATASETD_RETURN_IF_ERROR(CheckTransform(transform));
    if (next_position_ == kMaxTransforms) return TooManyTransforms();
    if (image_.is_mixed()) {
      return Invalid(
          "it comes after MixUp or CutMix, which must be the last op of its "
          "image: put it before");
    }
    image_.set_op(next_position_, OpIndex(field_index_, next_position_,
                                          transform.draw_id(), view_));
    ++next_position_;
    return Compile(transform);
  }

  absl::Status Finish() {
    if (image_.is_ragged()) {
      return Invalid(absl::StrCat(
          "its samples have sizes from ", RangeText(image_.sizes()),
          ", and a batch has one: its transforms must begin with an op that "
          "gives it, such as ",
          kSizeGivers,
          "; a field that is not used can be left out of the feed's"));
    }
    DATASETD_RETURN_IF_ERROR(image_.CheckLimits());
    image_.Finish();
    return absl::OkStatus();
  }

 private:
  absl::Status Compile(const v1::Transform& transform) {
    const v1::OpOptions& options = OptionsOf(transform);
    const bool is_for_masks = options.family() == v1::OP_FAMILY_GEOMETRY ||
                              options.family() == v1::OP_FAMILY_DTYPE ||
                              options.family() == v1::OP_FAMILY_GROUP;
    if (image_.is_mask() && !is_for_masks) {
      return Invalid(
          "it is for images, and the field is a mask, whose values are "
          "classes: a mask must have geometry, ToDtype and Normalize only");
    }
    if (image_.is_ragged() && options.sizes() == v1::SAMPLE_SIZES_EQUAL) {
      return Invalid(absl::StrCat(
          "it needs images of one size, and those of the samples are from ",
          RangeText(image_.sizes()),
          ": put an op that gives one before it, "
          "such as ",
          kSizeGivers));
    }
    switch (options.family()) {
      case v1::OP_FAMILY_SEQUENCE:
        return Invalid(
            "it is for fields of numbers, and the field is an image: name "
            "another field in the op's fields, or use an op on images");
      case v1::OP_FAMILY_GEOMETRY:
        return CompileGeometryOp(transform, image_);
      case v1::OP_FAMILY_COLOUR:
        return CompileColourOp(transform, image_);
      case v1::OP_FAMILY_ERASE:
        return CompileEraseOp(transform, image_);
      case v1::OP_FAMILY_DTYPE:
        return CompileDtypeOp(transform, image_);
      case v1::OP_FAMILY_BATCH:
        return CompileBatchOp(transform, image_);
      case v1::OP_FAMILY_POLICY:
        return CompilePolicyOp(transform, image_);
      case v1::OP_FAMILY_GROUP:
        return AddGroup(transform.random_apply());
      default:
        return NoCompiler(transform);
    }
  }

  absl::Status AddGroup(const v1::RandomApply& group) {
    DATASETD_RETURN_IF_ERROR(image_.BeginGroup(group.p()));
    for (int i = 0; i < group.transforms_size(); ++i) {
      DATASETD_RETURN_IF_ERROR(
          AtInner(i, group.transforms(i), Add(group.transforms(i))));
    }
    return image_.EndGroup();
  }

  ImageCompiler image_;
  const uint32_t field_index_;
  const uint32_t view_;
  // Depth-first: a nested op has the next number.
  uint32_t next_position_ = 0;
};

// `size` is the image's size, or the largest size of a packed field.
absl::Status StartImage(const FieldSpec& field, ImageSize size,
                        const TransformLimits& limits, FieldProgram& program) {
  std::vector<int64_t> shape = field.shape;
  if (shape.size() != 2 && shape.size() != 3) {
    return Invalid(absl::StrCat("an image has shape [H, W, C] or [H, W], not ",
                                shape.size(), " dimensions"));
  }
  shape[0] = size.height;
  shape[1] = size.width;
  const int64_t channels = shape.size() == 3 ? shape[2] : 1;
  if (channels < 1 || channels > kMaxChannels) {
    return Invalid(absl::StrCat("the image has ", channels,
                                " channels; it can have 1 to ", kMaxChannels));
  }
  if (shape[0] < 1 || shape[1] < 1 ||
      !FitsInSample(shape[0], shape[1], channels)) {
    return Invalid(absl::StrCat(
        "the image is ", SizeText(shape[0], shape[1]), " with ", channels,
        " channels; it can have 1 to ", kMaxElements, " elements"));
  }
  if (std::max(shape[0], shape[1]) > limits.max_side) {
    return Invalid(
        absl::StrCat("the image is ", SizeText(shape[0], shape[1]),
                     ", and transform_limits.max_side is ", limits.max_side,
                     ": cut it into smaller images where the dataset is made"));
  }
  if (!IsImageDtype(field.dtype)) {
    return Invalid(absl::StrCat(
        "images are uint8, float16, bfloat16 or float32 in memory, not ",
        DtypeName(field.dtype), ": convert the source"));
  }
  program.is_image = true;
  program.in_height = Narrow<int32_t>(shape[0]);
  program.in_width = Narrow<int32_t>(shape[1]);
  program.channels = Narrow<int32_t>(channels);
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
  program.in_width = Narrow<int32_t>(num_elements);
  program.channels = 1;
  program.operations = num_elements;
  program.layout = Layout::kNchw;
  return absl::OkStatus();
}

// The dtype of a field that is copied after its ToDtype.
absl::StatusOr<Dtype> CopiedDtype(const FieldSpec& field,
                                  const v1::Transform& op) {
  const Dtype from = field.dtype;
  DATASETD_RETURN_IF_ERROR(CheckTransform(op));
  const Dtype to = ToDtypeOf(op.to_dtype());
  if (to == from || IsKernelFloat(to) ||
      (to == Dtype::kInt64 && IsInteger(from))) {
    return to;
  }
  return Invalid(absl::StrCat(
      "a field of ", DtypeName(from), " cannot become ", DtypeName(to),
      IsInteger(from) ? ": it can become int64, " : ": it can become ",
      "float16, bfloat16 or float32"));
}

// Compiles the ops of a field of numbers that needs more than a copy.
class SequencePipeline {
 public:
  SequencePipeline(const FieldSpec& field, int field_index, int view,
                   const TransformLimits& limits, const NoiseFinder& noise,
                   FieldProgram* program)
      : sequence_(field, limits, noise, program),
        field_index_(Narrow<uint32_t>(field_index)),
        view_(Narrow<uint32_t>(view)) {}

  // Errors do not include the position.
  absl::Status Add(const v1::Transform& transform) {
    DATASETD_RETURN_IF_ERROR(CheckTransform(transform));
    if (next_position_ == kMaxTransforms) return TooManyTransforms();
    const uint32_t position = next_position_++;
    const uint32_t op_index =
        OpIndex(field_index_, position, transform.draw_id(), view_);
    if (!transform.has_random_apply()) {
      return sequence_.Add(transform, Narrow<uint16_t>(position), op_index);
    }
    const v1::RandomApply& group = transform.random_apply();
    DATASETD_RETURN_IF_ERROR(sequence_.BeginGroup(group.p(), op_index));
    for (int i = 0; i < group.transforms_size(); ++i) {
      DATASETD_RETURN_IF_ERROR(
          AtInner(i, group.transforms(i), Add(group.transforms(i))));
    }
    return sequence_.EndGroup();
  }

  absl::Status Finish() { return sequence_.Finish(); }

 private:
  SequenceCompiler sequence_;
  const uint32_t field_index_;
  const uint32_t view_;
  uint32_t next_position_ = 0;  // depth-first
};

absl::Status At(const FieldSpec& field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("field '", field.name,
                                                  "': ", status.message()));
}

absl::Status At(const FieldSpec& field, size_t position,
                const v1::Transform& op, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("field '", field.name, "', transforms[", position, "] ",
                   TransformName(op), ": ", status.message()));
}

}  // namespace

absl::StatusOr<FieldProgram> CompileField(const FieldSpec& field,
                                          int field_index,
                                          absl::Span<const v1::Transform> ops,
                                          Layout layout,
                                          absl::Span<const ImageSize> sizes,
                                          const TransformLimits& limits,
                                          int view, const NoiseFinder& noise) {
  Require(field.is_packed() != sizes.empty(), "a packed field has sizes");
  Require(field_index >= 0 && field_index < kMaxDatasetFields,
          "the index of a field is below kMaxDatasetFields");
  Require(view >= 0 && view <= kMaxView, "a view is within 0..kMaxView");
  if (ops.size() > kMaxTransforms) {
    return At(field,
              Invalid(absl::StrCat(ops.size(), " transforms; there can be ",
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
    if (!IsCopied(ops)) {
      SequencePipeline compiler(field, field_index, view, limits, noise,
                                &program);
      for (size_t i = 0; i < ops.size(); ++i) {
        DATASETD_RETURN_IF_ERROR(At(field, i, ops[i], compiler.Add(ops[i])));
      }
      DATASETD_RETURN_IF_ERROR(At(field, compiler.Finish()));
      return program;
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      absl::StatusOr<Dtype> dtype = CopiedDtype(field, ops[i]);
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
  ImageSize largest;
  std::vector<SampleSize> sample_sizes;
  sample_sizes.reserve(sizes.size());
  for (const ImageSize& size : sizes) {
    Require(size.height <= kMaxRaggedExtent && size.width <= kMaxRaggedExtent,
            "a sample's sides are within kMaxRaggedExtent");
    largest.height = std::max(largest.height, size.height);
    largest.width = std::max(largest.width, size.width);
    sample_sizes.push_back(
        {Narrow<int32_t>(size.height), Narrow<int32_t>(size.width)});
  }
  if (!field.is_packed() && field.shape.size() > 1) {
    largest = {field.shape[0], field.shape[1]};
  }
  DATASETD_RETURN_IF_ERROR(
      At(field, StartImage(field, largest, limits, program)));
  program.layout = layout;
  PipelineCompiler compiler(&program, field.is_mask, field_index, view,
                            std::move(sample_sizes), limits);
  for (size_t i = 0; i < ops.size(); ++i) {
    DATASETD_RETURN_IF_ERROR(At(field, i, ops[i], compiler.Add(ops[i])));
  }
  DATASETD_RETURN_IF_ERROR(At(field, compiler.Finish()));
  return program;
}

bool IsCopied(absl::Span<const v1::Transform> ops) {
  return std::all_of(ops.begin(), ops.end(), [](const v1::Transform& op) {
    return op.has_to_dtype() && !op.to_dtype().scale();
  });
}

std::vector<int64_t> OutputShape(const FieldSpec& field,
                                 const FieldProgram& program) {
  const bool is_mel = std::any_of(
      program.steps, program.steps + program.num_steps,
      [](const Step& step) { return step.kind == StepKind::kMelSpectrogram; });
  if (program.is_image || !is_mel) return field.shape;
  std::vector<int64_t> shape = {program.out_height, program.out_width};
  if (field.shape.size() > 1) shape.insert(shape.begin(), program.out_channels);
  return shape;
}

bool GivesOneSize(const v1::Transform& op) {
  if (op.has_resize()) {
    return op.resize().size().height() > 0 && op.resize().size().width() > 0;
  }
  return OptionsOf(op).sizes() == v1::SAMPLE_SIZES_ONE;
}

bool IsDeterministic(absl::Span<const v1::Transform> ops) {
  return std::none_of(ops.begin(), ops.end(), [](const v1::Transform& op) {
    return OptionsOf(op).is_random();
  });
}

}  // namespace datasetd
