#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/math/elementary.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

// A mask, whose values are classes, is sampled nearest and not antialiased.
ResizeParams BeginResize(v1::InterpolationMode mode, bool antialias,
                         const ImageCompiler& image) {
  ResizeParams params = {};
  params.interpolation = ToInterpolation(mode);
  if (image.is_mask() &&
      params.interpolation != InterpolationMode::kNearestExact) {
    params.interpolation = InterpolationMode::kNearest;
  }
  params.antialias = antialias && !image.is_mask();
  // Bicubic overshoots the range of values, so uint8 images are clamped.
  params.clamp = params.interpolation == InterpolationMode::kBicubic &&
                         image.dtype() == Dtype::kUint8
                     ? 255.0f
                     : 0.0f;
  return params;
}

absl::Status AddResize(const ResizeParams& params, int64_t height,
                       int64_t width, ImageCompiler& image,
                       const SizeChange& change = {}) {
  return image.Add(StepKind::kResize, params, 1.0, height, width,
                   image.channels(), change);
}

// Checks a Resize without height and width.
absl::Status CheckEdges(const v1::Resize& op) {
  if (op.shorter_edge() > kMaxElements || op.max_size() > kMaxElements) {
    return Invalid(absl::StrCat("size is ", op.shorter_edge(), " and max_size ",
                                op.max_size(), ": they must be within 1..",
                                kMaxElements));
  }
  if (op.shorter_edge() == 0 && op.max_size() == 0) {
    return Invalid("it has no size: give size or max_size");
  }
  if (op.shorter_edge() != 0 && op.max_size() != 0 &&
      op.max_size() <= op.shorter_edge()) {
    return Invalid(absl::StrCat("max_size is ", op.max_size(),
                                ": it must be above size, ",
                                op.shorter_edge()));
  }
  return absl::OkStatus();
}

// Computes the output size of a Resize.
absl::Status ResizedSize(const v1::Resize& op, const ImageCompiler& image,
                         int64_t* height, int64_t* width) {
  *height = op.size().height();
  *width = op.size().width();
  if (*height != 0 || *width != 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(CheckEdges(op));
  const int64_t old_short = std::min(image.height(), image.width());
  const int64_t old_long = std::max(image.height(), image.width());
  const int64_t max_size = op.max_size();
  int64_t new_short = op.shorter_edge();
  int64_t new_long = max_size;
  if (op.shorter_edge() == 0) {
    new_short = max_size * old_short / old_long;
  } else {
    new_long = new_short * old_long / old_short;
    if (max_size != 0 && new_long > max_size) {
      new_short = max_size * new_short / new_long;
      new_long = max_size;
    }
  }
  const bool is_portrait = image.height() >= image.width();
  *height = is_portrait ? new_long : new_short;
  *width = is_portrait ? new_short : new_long;
  return absl::OkStatus();
}

void SetBoth(float (&range)[2], double value) {
  range[0] = range[1] = static_cast<float>(value);
}

void SetRange(float (&range)[2], const v1::Range& values) {
  range[0] = static_cast<float>(values.min());
  range[1] = static_cast<float>(values.max());
}

struct OutputSize {
  int64_t height, width;
};

// The size that contains the whole image rotated clockwise by `angle` degrees
// about `center`, relative to the middle. As in torchvision: in float32, with
// coordinates truncated to 1e-4 pixels.
OutputSize ExpandedSize(double angle, const float (&center)[2],
                        const ImageCompiler& image) {
  const auto [sine, cosine] = SinCosPi(angle / 180.0);
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

// Begins an Affine whose center is relative to the middle of the image. `op`
// is one of the messages with a center.
template <typename Op>
AffineParams BeginAffine(const Op& op, const ImageCompiler& image) {
  AffineParams params = {};
  params.scale[0] = params.scale[1] = 1.0f;
  if (!op.has_center()) return params;
  params.center[0] = static_cast<float>(
      op.center().x() - 0.5 * static_cast<double>(image.width()));
  params.center[1] = static_cast<float>(
      op.center().y() - 0.5 * static_cast<double>(image.height()));
  return params;
}

// Sets the parameters common to affine ops, and adds a step with outputs of
// `size`.
template <typename Op>
absl::Status AddAffine(AffineParams params, const Op& op,
                       const OutputSize& size, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      SetWarp(op, size.height, size.width, image, &params));
  return image.Add(StepKind::kAffine, params, 1.0, size.height, size.width,
                   image.channels(), {});
}

OutputSize SameSize(const ImageCompiler& image) {
  return {.height = image.height(), .width = image.width()};
}

absl::Status AddRaggedResize(const v1::Resize& op, const ResizeParams& params,
                             ImageCompiler& image) {
  const int64_t height = op.size().height();
  const int64_t width = op.size().width();
  if (height != 0 || width != 0) {
    DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
    return AddResize(params, height, width, image, {SizeRule::kWhole});
  }
  DATASETD_RETURN_IF_ERROR(CheckEdges(op));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRaggedChange({op.shorter_edge(), op.max_size()}));
  if (op.shorter_edge() == 0) {
    return Invalid(
        "max_size without size, where samples differ in size: give size");
  }
  return AddResize(
      params, 0, 0, image,
      {SizeRule::kShorterEdge,
       {Narrow<int32_t>(op.shorter_edge()), Narrow<int32_t>(op.max_size())}});
}

absl::Status AddWholeResize(const v1::Resize& op, ImageCompiler& image) {
  if (op.has_size() && op.shorter_edge() != 0) {
    return Invalid(
        "size and shorter_edge are both set: it must be one of them");
  }
  ResizeParams params = BeginResize(op.interpolation(), op.antialias(), image);
  if (image.is_ragged()) return AddRaggedResize(op, params, image);
  int64_t height;
  int64_t width;
  DATASETD_RETURN_IF_ERROR(ResizedSize(op, image, &height, &width));
  DATASETD_RETURN_IF_ERROR(image.CheckSize(height, width));
  if (height == image.height() && width == image.width()) {
    return absl::OkStatus();
  }
  params.height = Narrow<int32_t>(image.height());
  params.width = Narrow<int32_t>(image.width());
  return AddResize(params, height, width, image);
}

absl::Status AddResizedCrop(const v1::ResizedCrop& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      image.CheckSize(op.size().height(), op.size().width()));
  ResizeParams params = BeginResize(op.interpolation(), op.antialias(), image);
  int64_t top = op.top();
  int64_t left = op.left();
  DATASETD_RETURN_IF_ERROR(
      PadToWindow(&top, &left, op.height(), op.width(), image));
  params.top = Narrow<int32_t>(top);
  params.left = Narrow<int32_t>(left);
  params.height = Narrow<int32_t>(op.height());
  params.width = Narrow<int32_t>(op.width());
  return AddResize(params, op.size().height(), op.size().width(), image);
}

absl::Status AddRandomResizedCrop(const v1::RandomResizedCrop& op,
                                  ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      image.CheckSize(op.size().height(), op.size().width()));
  ResizeParams params = BeginResize(op.interpolation(), op.antialias(), image);
  params.is_random = true;
  SetRange(params.scale, op.scale());
  params.ratio[0] = op.ratio().min();
  params.ratio[1] = op.ratio().max();
  params.log_ratio[0] = Log(op.ratio().min());
  params.log_ratio[1] = Log(op.ratio().max());
  return AddResize(params, op.size().height(), op.size().width(), image);
}

absl::Status AddRotate(const v1::Rotate& op, ImageCompiler& image) {
  AffineParams params = BeginAffine(op, image);
  SetBoth(params.angle, -op.angle());
  OutputSize size = SameSize(image);
  if (op.expand() && !op.has_center() && std::fmod(op.angle(), 90.0) == 0.0) {
    // Exact for multiples of 90 degrees, where corners are half a pixel off the
    // grid.
    if (std::fmod(op.angle(), 180.0) != 0.0) std::swap(size.height, size.width);
  } else if (op.expand()) {
    size = ExpandedSize(-op.angle(), params.center, image);
    DATASETD_RETURN_IF_ERROR(image.CheckSize(size.height, size.width));
  }
  return AddAffine(params, op, size, image);
}

absl::Status AddRandomRotation(const v1::RandomRotation& op,
                               ImageCompiler& image) {
  if (op.expand()) {
    return Invalid(
        "expand would give each sample a size of its own, by its angle, and a "
        "batch has one; a later op that gives one, such as Resize or "
        "CenterCrop, does not help here: set it to False, with a Pad before it "
        "where no corner may be lost; a Rotate, whose angle is fixed, can "
        "expand");
  }
  AffineParams params = BeginAffine(op, image);
  // Counter-clockwise.
  params.angle[0] = static_cast<float>(-op.degrees().max());
  params.angle[1] = static_cast<float>(-op.degrees().min());
  return AddAffine(params, op, SameSize(image), image);
}

absl::Status AddFixedAffine(const v1::Affine& op, ImageCompiler& image) {
  AffineParams params = BeginAffine(op, image);
  SetBoth(params.angle, op.angle());
  params.translate[0] = static_cast<float>(op.translate().x());
  params.translate[1] = static_cast<float>(op.translate().y());
  SetBoth(params.scale, op.scale());
  SetBoth(params.shear_x, op.shear().x());
  SetBoth(params.shear_y, op.shear().y());
  return AddAffine(params, op, SameSize(image), image);
}

absl::Status AddRandomAffine(const v1::RandomAffine& op, ImageCompiler& image) {
  AffineParams params = BeginAffine(op, image);
  SetRange(params.angle, op.degrees());
  if (op.has_translate()) {
    params.is_translate_random = true;
    params.translate[0] = static_cast<float>(
        op.translate().x() * static_cast<double>(image.width()));
    params.translate[1] = static_cast<float>(
        op.translate().y() * static_cast<double>(image.height()));
  }
  if (op.has_scale()) SetRange(params.scale, op.scale());
  if (op.has_shear_x()) SetRange(params.shear_x, op.shear_x());
  if (op.has_shear_y()) SetRange(params.shear_y, op.shear_y());
  return AddAffine(params, op, SameSize(image), image);
}

absl::Status AddRandomPerspective(const v1::RandomPerspective& op,
                                  ImageCompiler& image) {
  PerspectiveParams params = {};
  DATASETD_RETURN_IF_ERROR(
      SetWarp(op, image.height(), image.width(), image, &params));
  const auto reach = [&](int64_t size) {
    return static_cast<int32_t>(op.distortion_scale() *
                                static_cast<double>(size / 2));
  };
  params.reach[0] = reach(image.width());
  params.reach[1] = reach(image.height());
  return image.Add(StepKind::kPerspective, params, op.p());
}

}  // namespace

absl::Status CompileGeometryOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kResize:
      return AddWholeResize(op.resize(), image);
    case v1::Transform::kResizedCrop:
      return AddResizedCrop(op.resized_crop(), image);
    case v1::Transform::kRandomResizedCrop:
      return AddRandomResizedCrop(op.random_resized_crop(), image);
    case v1::Transform::kRotate:
      return AddRotate(op.rotate(), image);
    case v1::Transform::kRandomRotation:
      return AddRandomRotation(op.random_rotation(), image);
    case v1::Transform::kAffine:
      return AddFixedAffine(op.affine(), image);
    case v1::Transform::kRandomAffine:
      return AddRandomAffine(op.random_affine(), image);
    case v1::Transform::kRandomPerspective:
      return AddRandomPerspective(op.random_perspective(), image);
    default:
      return CompileMoveOp(op, image);
  }
}

}  // namespace datasetd
