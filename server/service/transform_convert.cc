#include "server/service/transform_convert.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

template <typename Enum>
constexpr int AsInt(Enum value) {
  return static_cast<int>(value);
}

// The internal enums have the numbers of the wire.
static_assert(AsInt(Dtype::kUint8) == v1::DTYPE_UINT8);
static_assert(AsInt(Dtype::kInt16) == v1::DTYPE_INT16);
static_assert(AsInt(Dtype::kInt32) == v1::DTYPE_INT32);
static_assert(AsInt(Dtype::kInt64) == v1::DTYPE_INT64);
static_assert(AsInt(Dtype::kFloat16) == v1::DTYPE_FLOAT16);
static_assert(AsInt(Dtype::kBfloat16) == v1::DTYPE_BFLOAT16);
static_assert(AsInt(Dtype::kFloat32) == v1::DTYPE_FLOAT32);
static_assert(AsInt(Dtype::kFloat64) == v1::DTYPE_FLOAT64);
static_assert(AsInt(PaddingMode::kConstant) == v1::PADDING_MODE_CONSTANT);
static_assert(AsInt(PaddingMode::kEdge) == v1::PADDING_MODE_EDGE);
static_assert(AsInt(PaddingMode::kReflect) == v1::PADDING_MODE_REFLECT);
static_assert(AsInt(PaddingMode::kSymmetric) == v1::PADDING_MODE_SYMMETRIC);
static_assert(AsInt(InterpolationMode::kNearest) ==
              v1::INTERPOLATION_MODE_NEAREST);
static_assert(AsInt(InterpolationMode::kNearestExact) ==
              v1::INTERPOLATION_MODE_NEAREST_EXACT);
static_assert(AsInt(InterpolationMode::kBilinear) ==
              v1::INTERPOLATION_MODE_BILINEAR);
static_assert(AsInt(InterpolationMode::kBicubic) ==
              v1::INTERPOLATION_MODE_BICUBIC);

using Floats = google::protobuf::RepeatedField<float>;

std::vector<float> ToVector(const Floats& values) {
  return {values.begin(), values.end()};
}

Padding ToPadding(const v1::Padding& padding) {
  return {.left = padding.left(),
          .top = padding.top(),
          .right = padding.right(),
          .bottom = padding.bottom()};
}

Interval ToInterval(const v1::Range& range) {
  return {range.min(), range.max()};
}

PointXy ToPoint(const v1::Point& point) { return {point.x(), point.y()}; }

absl::StatusOr<PaddingMode> ToPaddingMode(v1::PaddingMode mode) {
  if (mode == v1::PADDING_MODE_UNSPECIFIED) return PaddingMode::kConstant;
  if (v1::PaddingMode_IsValid(mode)) return static_cast<PaddingMode>(mode);
  return absl::InvalidArgumentError(
      absl::StrCat("padding_mode: ", AsInt(mode),
                   " is unknown; one of constant, edge, reflect, symmetric"));
}

absl::Status SetInterpolation(v1::InterpolationMode mode,
                              InterpolationMode* interpolation) {
  if (mode == v1::INTERPOLATION_MODE_UNSPECIFIED) return absl::OkStatus();
  if (!v1::InterpolationMode_IsValid(mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "interpolation: ", AsInt(mode),
        " is unknown; one of nearest, nearest_exact, bilinear, bicubic"));
  }
  *interpolation = static_cast<InterpolationMode>(mode);
  return absl::OkStatus();
}

// Converts an op whose only parameter is p.
template <typename Spec, typename Message>
Spec WithP(const Message& message, Spec spec = {}) {
  if (message.has_p()) spec.p = message.p();
  return spec;
}

using Result = absl::StatusOr<TransformSpec>;

Result ToSpec(const v1::Pad& op) {
  PadSpec spec;
  spec.padding = ToPadding(op.padding());
  spec.fill = ToVector(op.fill());
  DATASETD_ASSIGN_OR_RETURN(spec.padding_mode,
                            ToPaddingMode(op.padding_mode()));
  return spec;
}

Result ToSpec(const v1::RandomCrop& op) {
  RandomCropSpec spec;
  spec.height = op.height();
  spec.width = op.width();
  spec.padding = ToPadding(op.padding());
  spec.pad_if_needed = op.pad_if_needed();
  spec.fill = ToVector(op.fill());
  DATASETD_ASSIGN_OR_RETURN(spec.padding_mode,
                            ToPaddingMode(op.padding_mode()));
  return spec;
}

Result ToSpec(const v1::Resize& op) {
  ResizeSpec spec;
  if (op.has_size() && op.shorter_edge() != 0) {
    return absl::InvalidArgumentError(
        "size and shorter_edge are both set: set one of them");
  }
  spec.height = op.size().height();
  spec.width = op.size().width();
  spec.shorter_edge = op.shorter_edge();
  spec.max_size = op.max_size();
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  if (op.has_antialias()) spec.antialias = op.antialias();
  return spec;
}

Result ToSpec(const v1::ResizedCrop& op) {
  ResizedCropSpec spec;
  spec.top = op.top();
  spec.left = op.left();
  spec.height = op.height();
  spec.width = op.width();
  spec.out_height = op.size().height();
  spec.out_width = op.size().width();
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  if (op.has_antialias()) spec.antialias = op.antialias();
  return spec;
}

Result ToSpec(const v1::RandomResizedCrop& op) {
  RandomResizedCropSpec spec;
  spec.height = op.size().height();
  spec.width = op.size().width();
  if (op.has_scale()) spec.scale = ToInterval(op.scale());
  if (op.has_ratio()) spec.ratio = ToInterval(op.ratio());
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  if (op.has_antialias()) spec.antialias = op.antialias();
  return spec;
}

Result ToSpec(const v1::Rotate& op) {
  RotateSpec spec;
  spec.angle = op.angle();
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  spec.expand = op.expand();
  if (op.has_center()) spec.center = ToPoint(op.center());
  spec.fill = ToVector(op.fill());
  return spec;
}

Result ToSpec(const v1::RandomRotation& op) {
  RandomRotationSpec spec;
  spec.degrees = ToInterval(op.degrees());
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  spec.expand = op.expand();
  if (op.has_center()) spec.center = ToPoint(op.center());
  spec.fill = ToVector(op.fill());
  return spec;
}

Result ToSpec(const v1::Affine& op) {
  AffineSpec spec;
  spec.angle = op.angle();
  spec.translate = ToPoint(op.translate());
  if (op.has_scale()) spec.scale = op.scale();
  spec.shear = ToPoint(op.shear());
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  spec.fill = ToVector(op.fill());
  if (op.has_center()) spec.center = ToPoint(op.center());
  return spec;
}

Result ToSpec(const v1::RandomAffine& op) {
  RandomAffineSpec spec;
  spec.degrees = ToInterval(op.degrees());
  if (op.has_translate()) spec.translate = ToPoint(op.translate());
  if (op.has_scale()) spec.scale = ToInterval(op.scale());
  if (op.has_shear_x()) spec.shear_x = ToInterval(op.shear_x());
  if (op.has_shear_y()) spec.shear_y = ToInterval(op.shear_y());
  DATASETD_RETURN_IF_ERROR(
      SetInterpolation(op.interpolation(), &spec.interpolation));
  spec.fill = ToVector(op.fill());
  if (op.has_center()) spec.center = ToPoint(op.center());
  return spec;
}

Result ToSpec(const v1::ColorJitter& op) {
  ColorJitterSpec spec;
  if (op.has_brightness()) spec.brightness = ToInterval(op.brightness());
  if (op.has_contrast()) spec.contrast = ToInterval(op.contrast());
  if (op.has_saturation()) spec.saturation = ToInterval(op.saturation());
  if (op.has_hue()) spec.hue = ToInterval(op.hue());
  return spec;
}

Result ToSpec(const v1::GaussianBlur& op) {
  GaussianBlurSpec spec;
  spec.kernel_height = op.kernel_size().height();
  spec.kernel_width = op.kernel_size().width();
  if (op.has_sigma()) spec.sigma = ToInterval(op.sigma());
  return spec;
}

Result ToSpec(const v1::RandomErasing& op) {
  RandomErasingSpec spec = WithP<RandomErasingSpec>(op);
  if (op.has_scale()) spec.scale = ToInterval(op.scale());
  if (op.has_ratio()) spec.ratio = ToInterval(op.ratio());
  spec.value = ToVector(op.value());
  spec.is_value_random = op.is_value_random();
  if (spec.is_value_random && !spec.value.empty()) {
    return absl::InvalidArgumentError(
        "value and is_value_random are both set: set one of them");
  }
  return spec;
}

Result ToSpec(const v1::RandomApply& op) {
  RandomApplySpec spec = WithP<RandomApplySpec>(op);
  DATASETD_ASSIGN_OR_RETURN(spec.transforms,
                            TransformsFromProto(op.transforms(), "transforms"));
  return spec;
}

template <typename Spec, typename Message>
Spec ToBatchSpec(const Message& op) {
  Spec spec;
  if (op.has_alpha()) spec.alpha = op.alpha();
  spec.num_classes = op.num_classes();
  spec.per_sample = op.per_sample();
  if (!op.labels().empty()) spec.labels = op.labels();
  return spec;
}

Result ToSpec(const v1::ToDtype& op) {
  if (op.dtype() == v1::DTYPE_UNSPECIFIED || !v1::Dtype_IsValid(op.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ToDtype: dtype ", AsInt(op.dtype()), " is unknown or missing"));
  }
  return ToDtypeSpec{.dtype = static_cast<Dtype>(op.dtype()),
                     .scale = op.scale()};
}

Result ToSpec(const v1::Normalize& op) {
  NormalizeSpec spec;
  spec.mean.assign(op.mean().begin(), op.mean().end());
  spec.std.assign(op.std().begin(), op.std().end());
  return spec;
}

Result OpFromProto(const v1::Transform& op) {
  switch (op.op_case()) {
    case v1::Transform::kPad:
      return ToSpec(op.pad());
    case v1::Transform::kCrop:
      return CropSpec{.top = op.crop().top(),
                      .left = op.crop().left(),
                      .height = op.crop().height(),
                      .width = op.crop().width()};
    case v1::Transform::kCenterCrop:
      return CenterCropSpec{.height = op.center_crop().height(),
                            .width = op.center_crop().width()};
    case v1::Transform::kRandomCrop:
      return ToSpec(op.random_crop());
    case v1::Transform::kHorizontalFlip:
      return HorizontalFlipSpec{};
    case v1::Transform::kVerticalFlip:
      return VerticalFlipSpec{};
    case v1::Transform::kRandomHorizontalFlip:
      return WithP<RandomHorizontalFlipSpec>(op.random_horizontal_flip());
    case v1::Transform::kRandomVerticalFlip:
      return WithP<RandomVerticalFlipSpec>(op.random_vertical_flip());
    case v1::Transform::kAlternatingFlip:
      return AlternatingFlipSpec{};
    case v1::Transform::kResize:
      return ToSpec(op.resize());
    case v1::Transform::kResizedCrop:
      return ToSpec(op.resized_crop());
    case v1::Transform::kRandomResizedCrop:
      return ToSpec(op.random_resized_crop());
    case v1::Transform::kRotate:
      return ToSpec(op.rotate());
    case v1::Transform::kRandomRotation:
      return ToSpec(op.random_rotation());
    case v1::Transform::kAffine:
      return ToSpec(op.affine());
    case v1::Transform::kRandomAffine:
      return ToSpec(op.random_affine());
    case v1::Transform::kColorJitter:
      return ToSpec(op.color_jitter());
    case v1::Transform::kAdjustBrightness:
      return AdjustBrightnessSpec{op.adjust_brightness().brightness_factor()};
    case v1::Transform::kAdjustContrast:
      return AdjustContrastSpec{op.adjust_contrast().contrast_factor()};
    case v1::Transform::kAdjustSaturation:
      return AdjustSaturationSpec{op.adjust_saturation().saturation_factor()};
    case v1::Transform::kAdjustHue:
      return AdjustHueSpec{op.adjust_hue().hue_factor()};
    case v1::Transform::kGrayscale: {
      const uint32_t channels = op.grayscale().num_output_channels();
      return GrayscaleSpec{channels == 0 ? 1 : int64_t{channels}};
    }
    case v1::Transform::kRandomGrayscale:
      return WithP<RandomGrayscaleSpec>(op.random_grayscale());
    case v1::Transform::kInvert:
      return InvertSpec{};
    case v1::Transform::kRandomInvert:
      return WithP<RandomInvertSpec>(op.random_invert());
    case v1::Transform::kPosterize:
      return PosterizeSpec{op.posterize().bits()};
    case v1::Transform::kRandomPosterize:
      return WithP(op.random_posterize(),
                   RandomPosterizeSpec{.bits = op.random_posterize().bits()});
    case v1::Transform::kSolarize:
      return SolarizeSpec{op.solarize().threshold()};
    case v1::Transform::kRandomSolarize:
      return WithP(
          op.random_solarize(),
          RandomSolarizeSpec{.threshold = op.random_solarize().threshold()});
    case v1::Transform::kAdjustSharpness:
      return AdjustSharpnessSpec{op.adjust_sharpness().sharpness_factor()};
    case v1::Transform::kRandomAdjustSharpness: {
      const v1::RandomAdjustSharpness& sharpness = op.random_adjust_sharpness();
      return WithP(sharpness,
                   RandomAdjustSharpnessSpec{.sharpness_factor =
                                                 sharpness.sharpness_factor()});
    }
    case v1::Transform::kAutocontrast:
      return AutocontrastSpec{};
    case v1::Transform::kRandomAutocontrast:
      return WithP<RandomAutocontrastSpec>(op.random_autocontrast());
    case v1::Transform::kEqualize:
      return EqualizeSpec{};
    case v1::Transform::kRandomEqualize:
      return WithP<RandomEqualizeSpec>(op.random_equalize());
    case v1::Transform::kGaussianBlur:
      return ToSpec(op.gaussian_blur());
    case v1::Transform::kErase:
      return EraseSpec{.top = op.erase().top(),
                       .left = op.erase().left(),
                       .height = op.erase().height(),
                       .width = op.erase().width(),
                       .value = ToVector(op.erase().value())};
    case v1::Transform::kRandomErasing:
      return ToSpec(op.random_erasing());
    case v1::Transform::kCutout:
      return CutoutSpec{.size = op.cutout().size(),
                        .fill = ToVector(op.cutout().fill())};
    case v1::Transform::kRandomApply:
      return ToSpec(op.random_apply());
    case v1::Transform::kMixUp:
      return ToBatchSpec<MixUpSpec>(op.mix_up());
    case v1::Transform::kCutMix:
      return ToBatchSpec<CutMixSpec>(op.cut_mix());
    case v1::Transform::kToDtype:
      return ToSpec(op.to_dtype());
    case v1::Transform::kNormalize:
      return ToSpec(op.normalize());
    case v1::Transform::OP_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "unknown transform; this daemon may be older than the client");
}

Result TransformFromProto(const v1::Transform& op) {
  DATASETD_ASSIGN_OR_RETURN(TransformSpec spec, OpFromProto(op));
  if (op.draw_id() > kMaxDrawId) {
    return absl::InvalidArgumentError(absl::StrCat(
        "draw_id: ", op.draw_id(), " is out of range; 0 to ", kMaxDrawId));
  }
  spec.draw_id = op.draw_id();
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<TransformSpec>> TransformsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    const std::string& where) {
  std::vector<TransformSpec> specs;
  for (int i = 0; i < transforms.size(); ++i) {
    auto spec = TransformFromProto(transforms[i]);
    if (!spec.ok()) {
      return absl::Status(
          spec.status().code(),
          absl::StrCat(where, "[", i, "]: ", spec.status().message()));
    }
    specs.push_back(*std::move(spec));
  }
  return specs;
}

}  // namespace datasetd
