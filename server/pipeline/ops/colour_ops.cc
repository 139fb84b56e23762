#include "server/pipeline/ops/colour_ops.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// Maximum factor; keeps products finite.
constexpr double kMaxFactor = 1e6;

absl::Status CheckFactor(const char* name, double factor,
                         const ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  return ImageCompiler::CheckRange(name, factor, 0.0, kMaxFactor);
}

absl::Status AddPosterize(int64_t bits, double p, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRange("bits", static_cast<double>(bits), 0.0, 8.0));
  const PosterizeParams params = {Narrow<int32_t>(bits), image.bound()};
  return image.Add(StepKind::kPosterize, params, p);
}

absl::Status AddSolarize(double threshold, double p, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckRange(
      "threshold", threshold, 0.0, static_cast<double>(image.bound())));
  const SolarizeParams params = {static_cast<float>(threshold), image.bound()};
  return image.Add(StepKind::kSolarize, params, p);
}

absl::Status AddSharpness(double factor, double p, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(CheckFactor("sharpness_factor", factor, image));
  const AdjustSharpnessParams params = {static_cast<float>(factor),
                                        image.bound()};
  return image.Add(StepKind::kAdjustSharpness, params, p);
}

// Adds an op without parameters other than the bound.
template <typename Params>
absl::Status AddPlain(StepKind kind, double p, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  return image.Add(kind, Params{image.bound()}, p);
}

}  // namespace

absl::Status CompileOp(const ColorJitterSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  struct Part {
    const char* name;
    const std::optional<Interval>& range;
    double low, high;
  };
  // Indexed by JitterOp.
  const Part parts[kNumJitterOps] = {
      {"brightness", op.brightness, 0.0, kMaxFactor},
      {"contrast", op.contrast, 0.0, kMaxFactor},
      {"saturation", op.saturation, 0.0, kMaxFactor},
      {"hue", op.hue, -0.5, 0.5}};
  ColorJitterPart part = {};
  part.params.bound = image.bound();
  int num_parts = 0;
  for (int i = 0; i < kNumJitterOps; ++i) {
    if (!parts[i].range.has_value()) continue;
    DATASETD_RETURN_IF_ERROR(ImageCompiler::CheckInterval(
        parts[i].name, *parts[i].range, parts[i].low, parts[i].high));
    part.params.is_present[i] = true;
    part.params.low[i] = static_cast<float>(parts[i].range->min);
    part.params.high[i] = static_cast<float>(parts[i].range->max);
    ++num_parts;
  }
  for (part.turn = 0; part.turn < num_parts; ++part.turn) {
    DATASETD_RETURN_IF_ERROR(image.Add(StepKind::kColorJitter, part));
  }
  return absl::OkStatus();
}

absl::Status CompileOp(const AdjustBrightnessSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      CheckFactor("brightness_factor", op.brightness_factor, image));
  const AdjustBrightnessParams params = {
      static_cast<float>(op.brightness_factor), image.bound()};
  return image.Add(StepKind::kAdjustBrightness, params);
}

absl::Status CompileOp(const AdjustContrastSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      CheckFactor("contrast_factor", op.contrast_factor, image));
  const AdjustContrastParams params = {static_cast<float>(op.contrast_factor),
                                       image.bound()};
  return image.Add(StepKind::kAdjustContrast, params);
}

absl::Status CompileOp(const AdjustSaturationSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      CheckFactor("saturation_factor", op.saturation_factor, image));
  const AdjustSaturationParams params = {
      static_cast<float>(op.saturation_factor), image.bound()};
  return image.Add(StepKind::kAdjustSaturation, params);
}

absl::Status CompileOp(const AdjustHueSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckRange("hue_factor", op.hue_factor, -0.5, 0.5));
  const AdjustHueParams params = {static_cast<float>(op.hue_factor),
                                  image.bound()};
  return image.Add(StepKind::kAdjustHue, params);
}

absl::Status CompileOp(const GrayscaleSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  if (op.num_output_channels != 1 && op.num_output_channels != 3) {
    return Invalid(absl::StrCat("num_output_channels is ",
                                op.num_output_channels, ": it must be 1 or 3"));
  }
  const int channels = Narrow<int>(op.num_output_channels);
  if (!FitsInSample(image.height(), image.width(), channels)) {
    return Invalid("the image is too large for three channels");
  }
  return image.Add(StepKind::kGrayscale,
                   GrayscaleParams{channels, image.bound()}, 1.0,
                   image.height(), image.width(), channels, {SizeRule::kKeep});
}

absl::Status CompileOp(const RandomGrayscaleSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  return image.Add(StepKind::kGrayscale,
                   GrayscaleParams{image.channels(), image.bound()}, op.p);
}

absl::Status CompileOp(const InvertSpec&, ImageCompiler& image) {
  return AddPlain<InvertParams>(StepKind::kInvert, 1.0, image);
}

absl::Status CompileOp(const RandomInvertSpec& op, ImageCompiler& image) {
  return AddPlain<InvertParams>(StepKind::kInvert, op.p, image);
}

absl::Status CompileOp(const PosterizeSpec& op, ImageCompiler& image) {
  return AddPosterize(op.bits, 1.0, image);
}

absl::Status CompileOp(const RandomPosterizeSpec& op, ImageCompiler& image) {
  return AddPosterize(op.bits, op.p, image);
}

absl::Status CompileOp(const SolarizeSpec& op, ImageCompiler& image) {
  return AddSolarize(op.threshold, 1.0, image);
}

absl::Status CompileOp(const RandomSolarizeSpec& op, ImageCompiler& image) {
  return AddSolarize(op.threshold, op.p, image);
}

absl::Status CompileOp(const AdjustSharpnessSpec& op, ImageCompiler& image) {
  return AddSharpness(op.sharpness_factor, 1.0, image);
}

absl::Status CompileOp(const RandomAdjustSharpnessSpec& op,
                       ImageCompiler& image) {
  return AddSharpness(op.sharpness_factor, op.p, image);
}

absl::Status CompileOp(const AutocontrastSpec&, ImageCompiler& image) {
  return AddPlain<AutocontrastParams>(StepKind::kAutocontrast, 1.0, image);
}

absl::Status CompileOp(const RandomAutocontrastSpec& op, ImageCompiler& image) {
  return AddPlain<AutocontrastParams>(StepKind::kAutocontrast, op.p, image);
}

absl::Status CompileOp(const EqualizeSpec&, ImageCompiler& image) {
  return AddPlain<EqualizeParams>(StepKind::kEqualize, 1.0, image);
}

absl::Status CompileOp(const RandomEqualizeSpec& op, ImageCompiler& image) {
  return AddPlain<EqualizeParams>(StepKind::kEqualize, op.p, image);
}

absl::Status CompileOp(const GaussianBlurSpec& op, ImageCompiler& image) {
  if (image.is_mask()) return image.CheckColour();
  const std::pair<int64_t, int64_t> axes[] = {
      {op.kernel_height, image.height()}, {op.kernel_width, image.width()}};
  for (const auto& [size, extent] : axes) {
    if (size < 1 || size % 2 == 0 || size > 2 * kMaxBlurRadius + 1) {
      return Invalid(absl::StrCat(
          "kernel_size is ", op.kernel_height, "x", op.kernel_width,
          ": both must be odd and within 1..", 2 * kMaxBlurRadius + 1));
    }
    if (size / 2 >= extent) {
      return Invalid(absl::StrCat(
          "kernel_size is ", op.kernel_height, "x", op.kernel_width,
          " on an image of ", SizeText(image.height(), image.width()),
          ": half of it must be below the image's size, which is mirrored at "
          "its edge"));
    }
  }
  if (!(op.sigma.min > 0.0)) {
    return Invalid(
        absl::StrCat("sigma is ", op.sigma.min, ": it must be positive"));
  }
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckInterval("sigma", op.sigma, 1e-6, kMaxFactor));
  const GaussianBlurParams params = {Narrow<int32_t>(op.kernel_width / 2),
                                     Narrow<int32_t>(op.kernel_height / 2),
                                     static_cast<float>(op.sigma.min),
                                     static_cast<float>(op.sigma.max)};
  return image.Add(StepKind::kGaussianBlur, params);
}

}  // namespace datasetd
