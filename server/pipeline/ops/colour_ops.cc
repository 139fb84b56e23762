#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

float ToFloat(double value) { return static_cast<float>(value); }

absl::Status AddJitter(const v1::ColorJitter& op, ImageCompiler& image) {
  // Indexed by JitterOp.
  const std::pair<bool, const v1::Range&> parts[kNumJitterOps] = {
      {op.has_brightness(), op.brightness()},
      {op.has_contrast(), op.contrast()},
      {op.has_saturation(), op.saturation()},
      {op.has_hue(), op.hue()}};
  ColorJitterParams params = {};
  params.bound = image.bound();
  int num_parts = 0;
  for (int i = 0; i < kNumJitterOps; ++i) {
    const auto& [is_present, range] = parts[i];
    if (!is_present) continue;
    params.is_present[i] = true;
    params.low[i] = ToFloat(range.min());
    params.high[i] = ToFloat(range.max());
    ++num_parts;
  }
  for (params.turn = 0; params.turn < num_parts; ++params.turn) {
    DATASETD_RETURN_IF_ERROR(image.Add(StepKind::kColorJitter, params));
  }
  return absl::OkStatus();
}

absl::Status AddGrayscale(const v1::Grayscale& op, ImageCompiler& image) {
  const int channels = Narrow<int>(op.num_output_channels());
  if (!FitsInSample(image.height(), image.width(), channels)) {
    return Invalid("the image is too large for three channels");
  }
  return image.Add(StepKind::kGrayscale,
                   GrayscaleParams{channels, image.bound()}, 1.0,
                   image.height(), image.width(), channels, {SizeRule::kKeep});
}

absl::Status AddPosterize(uint32_t bits, double p, ImageCompiler& image) {
  const PosterizeParams params = {Narrow<int32_t>(bits), image.bound()};
  return image.Add(StepKind::kPosterize, params, p);
}

absl::Status AddSolarize(double threshold, double p, ImageCompiler& image) {
  // The range depends on the image's dtype here.
  if (threshold < 0.0 || threshold > image.bound()) {
    return Invalid(absl::StrCat("threshold is ", threshold,
                                ": it must be within 0..", image.bound()));
  }
  const SolarizeParams params = {ToFloat(threshold), image.bound()};
  return image.Add(StepKind::kSolarize, params, p);
}

absl::Status AddSharpness(double factor, double p, ImageCompiler& image) {
  const AdjustSharpnessParams params = {ToFloat(factor), image.bound()};
  return image.Add(StepKind::kAdjustSharpness, params, p);
}

absl::Status AddBlur(const v1::GaussianBlur& op, ImageCompiler& image) {
  const int64_t height = op.kernel_size().height();
  const int64_t width = op.kernel_size().width();
  const std::pair<int64_t, int64_t> axes[] = {{height, image.height()},
                                              {width, image.width()}};
  for (const auto& [size, extent] : axes) {
    if (size < 1 || size % 2 == 0 || size > 2 * kMaxBlurRadius + 1) {
      return Invalid(absl::StrCat("kernel_size is ", SizeText(height, width),
                                  ": both must be odd and within 1..",
                                  2 * kMaxBlurRadius + 1));
    }
    if (size / 2 >= extent) {
      return Invalid(absl::StrCat(
          "kernel_size is ", SizeText(height, width), " on an image of ",
          SizeText(image.height(), image.width()),
          ": half of it must be below the image's size, which is mirrored at "
          "its edge"));
    }
  }
  const GaussianBlurParams params = {
      Narrow<int32_t>(width / 2), Narrow<int32_t>(height / 2),
      ToFloat(op.sigma().min()), ToFloat(op.sigma().max())};
  return image.Add(StepKind::kGaussianBlur, params);
}

absl::Status AddNoise(const v1::GaussianNoise& op, ImageCompiler& image) {
  if (image.dtype() == Dtype::kUint8) {
    return Invalid(
        "it is for floating-point images, and this one is uint8: put a ToDtype "
        "with scale before it");
  }
  const GaussianNoiseParams params = {ToFloat(op.mean()), ToFloat(op.sigma()),
                                      op.clip()};
  return image.Add(StepKind::kGaussianNoise, params);
}

}  // namespace

absl::Status CompileColourOp(const v1::Transform& op, ImageCompiler& image) {
  if (op.has_gaussian_blur()) return AddBlur(op.gaussian_blur(), image);
  if (op.has_gaussian_noise()) return AddNoise(op.gaussian_noise(), image);
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  const float bound = image.bound();
  switch (op.op_case()) {
    case v1::Transform::kColorJitter:
      return AddJitter(op.color_jitter(), image);
    case v1::Transform::kAdjustBrightness:
      return image.Add(
          StepKind::kAdjustBrightness,
          AdjustBrightnessParams{
              ToFloat(op.adjust_brightness().brightness_factor()), bound});
    case v1::Transform::kAdjustContrast:
      return image.Add(
          StepKind::kAdjustContrast,
          AdjustContrastParams{ToFloat(op.adjust_contrast().contrast_factor()),
                               bound});
    case v1::Transform::kAdjustSaturation:
      return image.Add(
          StepKind::kAdjustSaturation,
          AdjustSaturationParams{
              ToFloat(op.adjust_saturation().saturation_factor()), bound});
    case v1::Transform::kAdjustHue:
      return image.Add(
          StepKind::kAdjustHue,
          AdjustHueParams{ToFloat(op.adjust_hue().hue_factor()), bound});
    case v1::Transform::kGrayscale:
      return AddGrayscale(op.grayscale(), image);
    case v1::Transform::kRandomGrayscale:
      return image.Add(StepKind::kGrayscale,
                       GrayscaleParams{image.channels(), bound},
                       op.random_grayscale().p());
    case v1::Transform::kInvert:
      return image.Add(StepKind::kInvert, InvertParams{bound});
    case v1::Transform::kRandomInvert:
      return image.Add(StepKind::kInvert, InvertParams{bound},
                       op.random_invert().p());
    case v1::Transform::kPosterize:
      return AddPosterize(op.posterize().bits(), 1.0, image);
    case v1::Transform::kRandomPosterize:
      return AddPosterize(op.random_posterize().bits(),
                          op.random_posterize().p(), image);
    case v1::Transform::kSolarize:
      return AddSolarize(op.solarize().threshold(), 1.0, image);
    case v1::Transform::kRandomSolarize:
      return AddSolarize(op.random_solarize().threshold(),
                         op.random_solarize().p(), image);
    case v1::Transform::kAdjustSharpness:
      return AddSharpness(op.adjust_sharpness().sharpness_factor(), 1.0, image);
    case v1::Transform::kRandomAdjustSharpness:
      return AddSharpness(op.random_adjust_sharpness().sharpness_factor(),
                          op.random_adjust_sharpness().p(), image);
    case v1::Transform::kAutocontrast:
      return image.Add(StepKind::kAutocontrast, AutocontrastParams{bound});
    case v1::Transform::kRandomAutocontrast:
      return image.Add(StepKind::kAutocontrast, AutocontrastParams{bound},
                       op.random_autocontrast().p());
    case v1::Transform::kEqualize:
      return image.Add(StepKind::kEqualize, EqualizeParams{bound});
    case v1::Transform::kRandomEqualize:
      return image.Add(StepKind::kEqualize, EqualizeParams{bound},
                       op.random_equalize().p());
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
