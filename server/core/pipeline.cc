#include "server/core/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"
#include "server/core/require.h"

namespace datasetd {
namespace {

// Of elements of one sample, at any stage; kernels count them in 32 bits.
constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();

absl::Status Invalid(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

std::string Size(int64_t height, int64_t width) {
  return absl::StrCat(height, "x", width);
}

bool IsKnown(Dtype dtype) { return DtypeSizeBytes(dtype) != 0; }

bool IsInteger(Dtype dtype) {
  return IsKnown(dtype) && !IsFloatingPoint(dtype);
}

bool IsKernelFloat(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 ||
         dtype == Dtype::kFloat32;
}

// REQUIRES: values are at least 0.
bool FitsInSample(int64_t height, int64_t width, int64_t channels) {
  return height <= kMaxElements && width <= kMaxElements &&
         height * width <= kMaxElements &&
         height * width * channels <= kMaxElements;
}

// int(round(difference / 2.0)) as Python does it: halves go to the even side.
int64_t RoundedHalf(int64_t difference) {
  const int64_t floor = difference / 2;
  return difference % 2 == 0 ? floor : floor + (floor & 1);
}

// Compiles the ops of one image field, in order.
class ImageCompiler {
 public:
  // `program` is of the field without ops; it must outlive this.
  ImageCompiler(FieldProgram* program, uint32_t first_op_index)
      : program_(*program),
        first_op_index_(first_op_index),
        height_(program->in_height),
        width_(program->in_width),
        dtype_(program->in_dtype) {}

  // Errors lack the place.
  absl::Status Add(int position, const TransformSpec& op) {
    op_index_ = first_op_index_ | static_cast<uint32_t>(position);
    return std::visit([this](const auto& spec) { return Compile(spec); },
                      op.op);
  }

  void Finish() {
    program_.out_height = static_cast<int32_t>(height_);
    program_.out_width = static_cast<int32_t>(width_);
    program_.out_dtype = dtype_;
    for (int i = 0; i < program_.num_moves; ++i) {
      Move& move = program_.moves[i];
      if (move.kind != MoveKind::kPad ||
          move.padding_mode != PaddingMode::kConstant) {
        continue;
      }
      for (int c = 0; c < program_.channels; ++c) {
        for (int k = num_value_ops_before_[i]; k < program_.num_value_ops;
             ++k) {
          const ValueOp& op = program_.value_ops[k];
          move.fill[c] = op.kind == ValueOpKind::kDivide
                             ? move.fill[c] / op.divisor
                             : (move.fill[c] - op.mean[c]) / op.std[c];
        }
      }
    }
  }

 private:
  absl::Status Compile(const PadSpec& op) {
    return AddPad(op.padding, op.fill, op.padding_mode);
  }

  absl::Status Compile(const CenterCropSpec& op) {
    DATASETD_RETURN_IF_ERROR(CheckCropSize(op.height, op.width));
    const int64_t lack_y = std::max<int64_t>(op.height - height_, 0);
    const int64_t lack_x = std::max<int64_t>(op.width - width_, 0);
    DATASETD_RETURN_IF_ERROR(AddPad({.left = lack_x / 2,
                                     .top = lack_y / 2,
                                     .right = (lack_x + 1) / 2,
                                     .bottom = (lack_y + 1) / 2},
                                    {}, PaddingMode::kConstant));
    if (op.height == height_ && op.width == width_) return absl::OkStatus();
    Move move = {};
    move.kind = MoveKind::kCrop;
    move.top = static_cast<int32_t>(RoundedHalf(height_ - op.height));
    move.left = static_cast<int32_t>(RoundedHalf(width_ - op.width));
    return AddMove(move, op.height, op.width);
  }

  absl::Status Compile(const RandomCropSpec& op) {
    DATASETD_RETURN_IF_ERROR(CheckCropSize(op.height, op.width));
    DATASETD_RETURN_IF_ERROR(CheckPadding(op.padding));
    Padding padding = op.padding;
    const int64_t padded_height = height_ + padding.top + padding.bottom;
    const int64_t padded_width = width_ + padding.left + padding.right;
    const int64_t lack_y = std::max<int64_t>(op.height - padded_height, 0);
    const int64_t lack_x = std::max<int64_t>(op.width - padded_width, 0);
    if (lack_y > 0 || lack_x > 0) {
      if (!op.pad_if_needed) {
        return Invalid(absl::StrCat(
            "the crop of ", Size(op.height, op.width),
            " (height x width) is larger than the ",
            padded_height != height_ || padded_width != width_ ? "padded " : "",
            "image of ", Size(padded_height, padded_width),
            ": make the crop smaller, or set padding or pad_if_needed"));
      }
      padding.top += lack_y;
      padding.bottom += lack_y;
      padding.left += lack_x;
      padding.right += lack_x;
    }
    DATASETD_RETURN_IF_ERROR(AddPad(padding, op.fill, op.padding_mode));
    if (op.height == height_ && op.width == width_) return absl::OkStatus();
    Move move = {};
    move.kind = MoveKind::kRandomCrop;
    return AddMove(move, op.height, op.width);
  }

  absl::Status Compile(const RandomHorizontalFlipSpec& op) {
    return AddFlip(MoveKind::kHorizontalFlip, op.p);
  }

  absl::Status Compile(const RandomVerticalFlipSpec& op) {
    return AddFlip(MoveKind::kVerticalFlip, op.p);
  }

  absl::Status Compile(const AlternatingFlipSpec&) {
    Move move = {};
    move.kind = MoveKind::kAlternatingFlip;
    return AddMove(move, height_, width_);
  }

  absl::Status Compile(const ToDtypeSpec& op) {
    if (!IsKnown(op.dtype)) {
      return Invalid(
          "the dtype is not set: use float16, bfloat16 or float32");
    }
    if (op.dtype == dtype_) return absl::OkStatus();
    if (op.dtype == Dtype::kUint8) {
      return Invalid(absl::StrCat(
          "from ", DtypeName(dtype_),
          " back to uint8 is not supported: leave out this op, and the ops "
          "to a floating point type before it"));
    }
    if (!IsKernelFloat(op.dtype)) {
      return Invalid(absl::StrCat(
          "an image cannot become ", DtypeName(op.dtype),
          ": it can be uint8 from the start, float16, bfloat16 or float32"));
    }
    if (dtype_ == Dtype::kUint8 && op.scale) {
      ValueOp value_op = {};
      value_op.kind = ValueOpKind::kDivide;
      value_op.divisor = 255.0f;
      DATASETD_RETURN_IF_ERROR(AddValueOp(value_op));
    }
    dtype_ = op.dtype;
    return absl::OkStatus();
  }

  absl::Status Compile(const NormalizeSpec& op) {
    if (!IsFloatingPoint(dtype_)) {
      return Invalid(
          "Normalize needs a floating point image: put ToDtype(float32, "
          "scale=True) before it");
    }
    ValueOp value_op = {};
    value_op.kind = ValueOpKind::kNormalize;
    DATASETD_RETURN_IF_ERROR(PerChannel("mean", op.mean, value_op.mean));
    DATASETD_RETURN_IF_ERROR(PerChannel("std", op.std, value_op.std));
    for (int c = 0; c < program_.channels; ++c) {
      if (value_op.std[c] == 0.0f) {
        return Invalid(absl::StrCat("std is 0 in channel ", c,
                                    ": it must not be, as float32 either"));
      }
    }
    return AddValueOp(value_op);
  }

  template <typename Op>
  absl::Status Compile(const Op&) {
    return absl::UnimplementedError(
        absl::StrCat("this daemon has no ", Op::kName,
                     ": leave it out, or use a newer daemon"));
  }

  absl::Status CheckCropSize(int64_t height, int64_t width) const {
    if (height < 1 || width < 1) {
      return Invalid(absl::StrCat("the size is ", Size(height, width),
                                  ": height and width must be at least 1"));
    }
    if (!FitsInSample(height, width, program_.channels)) {
      return Invalid(absl::StrCat("the size ", Size(height, width), " with ",
                                  program_.channels, " channels is more than ",
                                  kMaxElements, " elements"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPadding(const Padding& padding) const {
    const std::pair<const char*, int64_t> sides[] = {{"left", padding.left},
                                                     {"top", padding.top},
                                                     {"right", padding.right},
                                                     {"bottom",
                                                      padding.bottom}};
    for (const auto& [name, extent] : sides) {
      if (extent < 0 || extent > kMaxElements) {
        return Invalid(absl::StrCat("the padding is ", extent, " on the ",
                                    name, ": it must be within 0..",
                                    kMaxElements));
      }
    }
    return absl::OkStatus();
  }

  // `values` has one entry, for all channels, or one per channel.
  template <typename T>
  absl::Status PerChannel(const char* name, const std::vector<T>& values,
                          float (&channels)[kMaxChannels]) const {
    const size_t count = static_cast<size_t>(program_.channels);
    if (values.size() != 1 && values.size() != count) {
      return Invalid(absl::StrCat(
          name, " has ", values.size(), " values, and the image has ", count,
          count == 1 ? " channel" : " channels",
          ": give one value, or one per channel"));
    }
    for (size_t c = 0; c < count; ++c) {
      const T value = values[values.size() == 1 ? 0 : c];
      // Out of float's range is as bad as infinite, and undefined to cast.
      if (!std::isfinite(value) ||
          std::abs(value) > std::numeric_limits<float>::max()) {
        return Invalid(absl::StrCat(name, " is ", value, " in channel ", c,
                                    ": it must be a finite float32"));
      }
      channels[c] = static_cast<float>(value);
    }
    return absl::OkStatus();
  }

  absl::Status CheckReach(const char* mode, int64_t largest, const char* axis,
                          int64_t before, int64_t after, int64_t size) const {
    const int64_t padding = std::max(before, after);
    if (padding <= largest) return absl::OkStatus();
    return Invalid(absl::StrCat(
        mode, " padding of ", padding, " on an image of ", axis, " ", size,
        ": it can be at most ", largest,
        "; use a smaller padding, or padding_mode edge or constant"));
  }

  // Adds nothing where nothing is padded, but checks all the same.
  absl::Status AddPad(const Padding& padding, const std::vector<float>& fill,
                      PaddingMode mode) {
    DATASETD_RETURN_IF_ERROR(CheckPadding(padding));
    Move move = {};
    move.kind = MoveKind::kPad;
    move.padding_mode = mode;
    if (!fill.empty()) {
      DATASETD_RETURN_IF_ERROR(PerChannel("fill", fill, move.fill));
    }
    for (float value : move.fill) {
      if (dtype_ == Dtype::kUint8 &&
          (value < 0.0f || value > 255.0f || value != std::floor(value))) {
        return Invalid(absl::StrCat(
            "fill is ", value,
            " on a uint8 image: it must be an integer within 0..255, in the "
            "units of the image at this op; or put ToDtype before it"));
      }
    }
    switch (mode) {
      case PaddingMode::kConstant:
      case PaddingMode::kEdge:
        break;
      case PaddingMode::kReflect:
        DATASETD_RETURN_IF_ERROR(CheckReach("reflect", height_ - 1, "height",
                                            padding.top, padding.bottom,
                                            height_));
        DATASETD_RETURN_IF_ERROR(CheckReach("reflect", width_ - 1, "width",
                                            padding.left, padding.right,
                                            width_));
        break;
      case PaddingMode::kSymmetric:
        DATASETD_RETURN_IF_ERROR(CheckReach("symmetric", height_, "height",
                                            padding.top, padding.bottom,
                                            height_));
        DATASETD_RETURN_IF_ERROR(CheckReach("symmetric", width_, "width",
                                            padding.left, padding.right,
                                            width_));
        break;
      default:
        return Invalid(
            "the padding_mode is unknown: use constant, edge, reflect or "
            "symmetric");
    }
    const int64_t height = height_ + padding.top + padding.bottom;
    const int64_t width = width_ + padding.left + padding.right;
    if (height == height_ && width == width_) return absl::OkStatus();
    if (!FitsInSample(height, width, program_.channels)) {
      return Invalid(absl::StrCat(
          "the padded image of ", Size(height, width), " with ",
          program_.channels, " channels is more than ", kMaxElements,
          " elements"));
    }
    if (mode != PaddingMode::kConstant) {
      std::fill(std::begin(move.fill), std::end(move.fill), 0.0f);
    }
    move.top = static_cast<int32_t>(padding.top);
    move.left = static_cast<int32_t>(padding.left);
    return AddMove(move, height, width);
  }

  absl::Status AddFlip(MoveKind kind, double p) {
    if (!(p >= 0.0 && p <= 1.0)) {
      return Invalid(
          absl::StrCat("p is ", p, ": it must be within 0..1"));
    }
    if (p == 0.0) return absl::OkStatus();
    Move move = {};
    move.kind = kind;
    move.probability = static_cast<float>(p);
    return AddMove(move, height_, width_);
  }

  // Completes `move` by the sizes before and after it.
  absl::Status AddMove(Move move, int64_t out_height, int64_t out_width) {
    if (program_.num_moves == kMaxMoves) {
      return Invalid(absl::StrCat(
          "too many geometric steps: a field can have ", kMaxMoves,
          ", and a crop with padding is two"));
    }
    move.op_index = op_index_;
    if (move.kind != MoveKind::kPad) move.padding_mode = PaddingMode::kConstant;
    move.in_height = static_cast<int32_t>(height_);
    move.in_width = static_cast<int32_t>(width_);
    move.out_height = static_cast<int32_t>(out_height);
    move.out_width = static_cast<int32_t>(out_width);
    height_ = out_height;
    width_ = out_width;
    num_value_ops_before_[program_.num_moves] = program_.num_value_ops;
    program_.moves[program_.num_moves++] = move;
    return absl::OkStatus();
  }

  absl::Status AddValueOp(const ValueOp& op) {
    if (program_.num_value_ops == kMaxValueOps) {
      return Invalid(absl::StrCat(
          "too many value steps: a field can have ", kMaxValueOps,
          "; a scaling ToDtype is one, and a Normalize"));
    }
    program_.value_ops[program_.num_value_ops++] = op;
    return absl::OkStatus();
  }

  FieldProgram& program_;
  const uint32_t first_op_index_;
  uint32_t op_index_ = 0;
  // Of the image after the ops so far.
  int64_t height_;
  int64_t width_;
  Dtype dtype_;
  int num_value_ops_before_[kMaxMoves] = {};
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
    return Invalid(absl::StrCat("the image is ", Size(shape[0], shape[1]),
                                " with ", channels,
                                " channels; it can have 1 to ", kMaxElements,
                                " elements"));
  }
  if (field.dtype != Dtype::kUint8 && field.dtype != Dtype::kFloat32) {
    return Invalid(absl::StrCat("images are uint8 or float32 in memory, not ",
                                DtypeName(field.dtype),
                                ": convert the source"));
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
  ImageCompiler compiler(&program, static_cast<uint32_t>(field_index) << 8);
  for (size_t i = 0; i < ops.size(); ++i) {
    DATASETD_RETURN_IF_ERROR(
        At(field, i, ops[i], compiler.Add(static_cast<int>(i), ops[i])));
  }
  compiler.Finish();
  return program;
}

bool IsDeterministic(absl::Span<const TransformSpec> ops) {
  return std::none_of(ops.begin(), ops.end(), IsRandom);
}

}  // namespace datasetd
