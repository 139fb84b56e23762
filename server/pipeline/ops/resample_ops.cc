#include "server/pipeline/ops/resample_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/math/elementary.h"
#include "server/pipeline/ops/move_ops.h"

namespace datasetd {
namespace {

// Beyond these ratios or scales an image has no pixels.
constexpr double kTiny = 1e-6;
constexpr double kHuge = 1e6;
// Limit on angles and shears, in degrees.
constexpr double kMaxAngle = 1e6;

// Sets the interpolation for this field: masks use nearest.
absl::Status TakeInterpolation(InterpolationMode interpolation,
                               const ImageCompiler& image, ResizeParams* params,
                               bool antialias) {
  switch (interpolation) {
    case InterpolationMode::kNearest:
    case InterpolationMode::kNearestExact:
      break;
    case InterpolationMode::kBilinear:
    case InterpolationMode::kBicubic:
      if (image.is_mask()) interpolation = InterpolationMode::kNearest;
      break;
    default:
      return Invalid(
          "the interpolation is unknown: use nearest, nearest-exact, bilinear "
          "or bicubic");
  }
  params->interpolation = interpolation;
  params->antialias = antialias;
  // Bicubic overshoots the range of values, so uint8 images are clamped.
  params->clamp = interpolation == InterpolationMode::kBicubic &&
                          image.dtype() == Dtype::kUint8
                      ? 255.0f
                      : 0.0f;
  return absl::OkStatus();
}

absl::Status AddResize(const ResizeParams& params, int64_t height,
                       int64_t width, ImageCompiler& image,
                       const SizeChange& change = {}) {
  return image.Add(StepKind::kResize, params, 1.0, height, width,
                   image.channels(), change);
}

// Checks a Resize without height and width.
absl::Status CheckEdges(const ResizeSpec& op) {
  if (op.shorter_edge < 0 || op.shorter_edge > kMaxElements ||
      op.max_size < 0 || op.max_size > kMaxElements) {
    return Invalid(absl::StrCat("size is ", op.shorter_edge, " and max_size ",
                                op.max_size, ": they must be within 1..",
                                kMaxElements));
  }
  if (op.shorter_edge == 0 && op.max_size == 0) {
    return Invalid("it has no size: give size or max_size");
  }
  if (op.shorter_edge != 0 && op.max_size != 0 &&
      op.max_size <= op.shorter_edge) {
    return Invalid(absl::StrCat("max_size is ", op.max_size,
                                ": it must be above size, ", op.shorter_edge));
  }
  return absl::OkStatus();
}

// Computes the output size of a Resize.
absl::Status ResizedSize(const ResizeSpec& op, const ImageCompiler& image,
                         int64_t* height, int64_t* width) {
  *height = op.height;
  *width = op.width;
  if (op.height != 0 || op.width != 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(CheckEdges(op));
  const int64_t old_short = std::min(image.height(), image.width());
  const int64_t old_long = std::max(image.height(), image.width());
  int64_t new_short = op.shorter_edge;
  int64_t new_long = op.max_size;
  if (op.shorter_edge == 0) {
    new_short = op.max_size * old_short / old_long;
  } else {
    new_long = op.shorter_edge * old_long / old_short;
    if (op.max_size != 0 && new_long > op.max_size) {
      new_short = op.max_size * new_short / new_long;
      new_long = op.max_size;
    }
  }
  const bool is_portrait = image.height() >= image.width();
  *height = is_portrait ? new_long : new_short;
  *width = is_portrait ? new_short : new_long;
  return absl::OkStatus();
}

// The parameters of the identity.
AffineParams NoAffine() {
  AffineParams params = {};
  params.scale[0] = params.scale[1] = 1.0f;
  return params;
}

void SetBoth(float (&range)[2], double value) {
  range[0] = range[1] = static_cast<float>(value);
}

void SetRange(float (&range)[2], const Interval& interval) {
  range[0] = static_cast<float>(interval.min);
  range[1] = static_cast<float>(interval.max);
}

struct OutputSize {
  int64_t height, width;
};

// The size that contains the whole image rotated clockwise by `angle` degrees
// about `center`, relative to the middle. As in torchvision: in float32, with
// coordinates truncated to 1e-4 pixels.
OutputSize ExpandedSize(double angle, const float (&center)[2],
                        const ImageCompiler& image) {
  double sine;
  double cosine;
  SinCosPi(angle / 180.0, &sine, &cosine);
  const double inverse[2][2] = {{cosine, sine}, {-sine, cosine}};
  const double size[2] = {static_cast<double>(image.width()),
                          static_cast<double>(image.height())};
  int64_t expanded[2];
  for (int i = 0; i < 2; ++i) {
    const auto along_x = static_cast<float>(inverse[i][0]);
    const auto along_y = static_cast<float>(inverse[i][1]);
    const auto offset = static_cast<float>(
        center[i] - inverse[i][0] * center[0] - inverse[i][1] * center[1]);
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    for (const double x : {-0.5 * size[0], 0.5 * size[0]}) {
      for (const double y : {-0.5 * size[1], 0.5 * size[1]}) {
        const float at = static_cast<float>(x) * along_x +
                         static_cast<float>(y) * along_y + offset;
        low = std::min(low, at);
        high = std::max(high, at);
      }
    }
    const auto cut = [&](float at) {
      constexpr float kPart = 1e-4f;
      return std::trunc((at + static_cast<float>(0.5 * size[i])) / kPart) *
             kPart;
    };
    expanded[i] =
        static_cast<int64_t>(std::ceil(cut(high)) - std::floor(cut(low)));
  }
  return {.height = expanded[1], .width = expanded[0]};
}

// Computes the center relative to the middle of the image.
absl::Status TakeCenter(const std::optional<PointXy>& center,
                        const ImageCompiler& image, AffineParams* params) {
  if (!center.has_value()) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRange(
      "center", center->x, -kMaxElements, kMaxElements));
  DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRange(
      "center", center->y, -kMaxElements, kMaxElements));
  params->center[0] =
      static_cast<float>(center->x - 0.5 * static_cast<double>(image.width()));
  params->center[1] =
      static_cast<float>(center->y - 0.5 * static_cast<double>(image.height()));
  return absl::OkStatus();
}

// Sets the parameters common to affine ops, and adds a step with outputs of
// `size`.
absl::Status AddAffine(AffineParams params, InterpolationMode interpolation,
                       const std::vector<float>& fill, const OutputSize& size,
                       ImageCompiler& image) {
  if (interpolation != InterpolationMode::kNearest &&
      interpolation != InterpolationMode::kBilinear) {
    return Invalid("the interpolation must be nearest or bilinear");
  }
  params.is_bilinear =
      interpolation == InterpolationMode::kBilinear && !image.is_mask();
  if (!fill.empty()) {
    params.has_fill = true;
    DATASETD_RETURN_IF_ERROR(image.PerChannel("fill", fill, params.fill));
  }
  params.out_middle[0] = 0.5f * static_cast<float>(size.width) - 0.5f;
  params.out_middle[1] = 0.5f * static_cast<float>(size.height) - 0.5f;
  return image.Add(StepKind::kAffine, params, 1.0, size.height, size.width,
                   image.channels(), {});
}

OutputSize SameSize(const ImageCompiler& image) {
  return {.height = image.height(), .width = image.width()};
}

absl::Status CheckAngles(const char* name, const Interval& interval) {
  return ImageCompiler::CheckInterval(name, interval, -kMaxAngle, kMaxAngle);
}

absl::Status CompileRaggedResize(const ResizeSpec& op, ImageCompiler& image) {
  ResizeParams params = {};
  DATASETD_RETURN_IF_ERROR(
      TakeInterpolation(op.interpolation, image, &params, op.antialias));
  if (op.height != 0 || op.width != 0) {
    DATASETD_RETURN_IF_ERROR(image.CheckSize(op.height, op.width));
    return AddResize(params, op.height, op.width, image, {SizeRule::kWhole});
  }
  DATASETD_RETURN_IF_ERROR(CheckEdges(op));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRaggedChange({op.shorter_edge, op.max_size}));
  if (op.shorter_edge == 0) {
    return Invalid(
        "max_size without size, where samples differ in size: give size");
  }
  return AddResize(
      params, 0, 0, image,
      {SizeRule::kShorterEdge,
       {Narrow<int32_t>(op.shorter_edge), Narrow<int32_t>(op.max_size)}});
}

}  // namespace

absl::Status CompileOp(const ResizeSpec& op, ImageCompiler& image) {
  if (image.is_ragged()) return CompileRaggedResize(op, image);
  int64_t height;
  int64_t width;
  DATASETD_RETURN_IF_ERROR(ResizedSize(op, image, &height, &width));
  DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
  ResizeParams params = {};
  DATASETD_RETURN_IF_ERROR(
      TakeInterpolation(op.interpolation, image, &params, op.antialias));
  if (height == image.height() && width == image.width()) {
    return absl::OkStatus();
  }
  params.height = Narrow<int32_t>(image.height());
  params.width = Narrow<int32_t>(image.width());
  return AddResize(params, height, width, image);
}

absl::Status CompileOp(const ResizedCropSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(op.out_height, op.out_width));
  ResizeParams params = {};
  DATASETD_RETURN_IF_ERROR(
      TakeInterpolation(op.interpolation, image, &params, op.antialias));
  int64_t top = op.top;
  int64_t left = op.left;
  DATASETD_RETURN_IF_ERROR(
      PadToWindow(&top, &left, op.height, op.width, image));
  params.top = Narrow<int32_t>(top);
  params.left = Narrow<int32_t>(left);
  params.height = Narrow<int32_t>(op.height);
  params.width = Narrow<int32_t>(op.width);
  return AddResize(params, op.out_height, op.out_width, image);
}

absl::Status CompileOp(const RandomResizedCropSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckSize(op.height, op.width));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckInterval("scale", op.scale, 0.0, kHuge));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckInterval("ratio", op.ratio, kTiny, kHuge));
  ResizeParams params = {};
  DATASETD_RETURN_IF_ERROR(
      TakeInterpolation(op.interpolation, image, &params, op.antialias));
  params.is_random = true;
  SetRange(params.scale, op.scale);
  params.ratio[0] = op.ratio.min;
  params.ratio[1] = op.ratio.max;
  params.log_ratio[0] = Log(op.ratio.min);
  params.log_ratio[1] = Log(op.ratio.max);
  return AddResize(params, op.height, op.width, image);
}

absl::Status CompileOp(const RotateSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRange("angle", op.angle, -kMaxAngle, kMaxAngle));
  AffineParams params = NoAffine();
  SetBoth(params.angle, -op.angle);
  DATASETD_RETURN_IF_ERROR(TakeCenter(op.center, image, &params));
  OutputSize size = SameSize(image);
  if (op.expand && !op.center.has_value() && std::fmod(op.angle, 90.0) == 0.0) {
    // Exact for multiples of 90 degrees, where corners are half a pixel off the
    // grid.
    if (std::fmod(op.angle, 180.0) != 0.0) std::swap(size.height, size.width);
  } else if (op.expand) {
    size = ExpandedSize(-op.angle, params.center, image);
    DATASETD_RETURN_IF_ERROR(image.CheckSize(size.height, size.width));
  }
  return AddAffine(params, op.interpolation, op.fill, size, image);
}

absl::Status CompileOp(const RandomRotationSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(CheckAngles("degrees", op.degrees));
  if (op.expand) {
    return Invalid(
        "expand would give each sample a size of its own, by its angle, and a "
        "batch has one; a later op that gives one, such as Resize or "
        "CenterCrop, does not help here: set it to False, with a Pad before it "
        "where no corner may be lost; a Rotate, whose angle is fixed, can "
        "expand");
  }
  AffineParams params = NoAffine();
  SetRange(params.angle, {-op.degrees.max, -op.degrees.min});
  DATASETD_RETURN_IF_ERROR(TakeCenter(op.center, image, &params));
  return AddAffine(params, op.interpolation, op.fill, SameSize(image), image);
}

absl::Status CompileOp(const AffineSpec& op, ImageCompiler& image) {
  AffineParams params = NoAffine();
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRange("angle", op.angle, -kMaxAngle, kMaxAngle));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRange("scale", op.scale, kTiny, kHuge));
  const std::pair<const char*, double> others[] = {
      {"translate", op.translate.x},
      {"translate", op.translate.y},
      {"shear", op.shear.x},
      {"shear", op.shear.y}};
  for (const auto& [name, value] : others) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRange(name, value, -kMaxAngle, kMaxAngle));
  }
  SetBoth(params.angle, op.angle);
  params.translate[0] = static_cast<float>(op.translate.x);
  params.translate[1] = static_cast<float>(op.translate.y);
  SetBoth(params.scale, op.scale);
  SetBoth(params.shear_x, op.shear.x);
  SetBoth(params.shear_y, op.shear.y);
  DATASETD_RETURN_IF_ERROR(TakeCenter(op.center, image, &params));
  return AddAffine(params, op.interpolation, op.fill, SameSize(image), image);
}

absl::Status CompileOp(const RandomAffineSpec& op, ImageCompiler& image) {
  AffineParams params = NoAffine();
  DATASETD_RETURN_IF_ERROR(CheckAngles("degrees", op.degrees));
  SetRange(params.angle, op.degrees);
  if (op.translate.has_value()) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRange("translate", op.translate->x, 0.0, 1.0));
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRange("translate", op.translate->y, 0.0, 1.0));
    params.is_translate_random = true;
    params.translate[0] = static_cast<float>(
        op.translate->x * static_cast<double>(image.width()));
    params.translate[1] = static_cast<float>(
        op.translate->y * static_cast<double>(image.height()));
  }
  if (op.scale.has_value()) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckInterval("scale", *op.scale, kTiny, kHuge));
    SetRange(params.scale, *op.scale);
  }
  if (op.shear_x.has_value()) {
    DATASETD_RETURN_IF_ERROR(CheckAngles("shear", *op.shear_x));
    SetRange(params.shear_x, *op.shear_x);
  }
  if (op.shear_y.has_value()) {
    DATASETD_RETURN_IF_ERROR(CheckAngles("shear", *op.shear_y));
    SetRange(params.shear_y, *op.shear_y);
  }
  DATASETD_RETURN_IF_ERROR(TakeCenter(op.center, image, &params));
  return AddAffine(params, op.interpolation, op.fill, SameSize(image), image);
}

}  // namespace datasetd
