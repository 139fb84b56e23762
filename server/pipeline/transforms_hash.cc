#include "server/pipeline/transforms_hash.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/digest.h"

namespace datasetd {
namespace {

// Part of the hash: change it when the text below changes.
constexpr const char* kVersion = "datasetd transforms 2";

std::string Number(double value) {
  float number = static_cast<float>(value);
  if (number == 0.0f) number = 0.0f;  // maps -0 to 0
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad8));
}

template <typename T>
std::string Numbers(const std::vector<T>& values) {
  std::vector<std::string> numbers;
  for (T value : values) numbers.push_back(Number(value));
  if (std::all_of(numbers.begin(), numbers.end(),
                  [&](const std::string& n) { return n == numbers[0]; }) &&
      !numbers.empty()) {
    numbers.resize(1);
  }
  std::string text;
  for (const std::string& number : numbers) {
    absl::StrAppend(&text, text.empty() ? "" : ",", number);
  }
  return text;
}

// All bits of parameters that the host computes with count.
std::string Exact(double value) {
  if (value == 0.0) value = 0.0;  // maps -0 to 0
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

std::string Exact(const Interval& interval) {
  return absl::StrCat(Exact(interval.min), "..", Exact(interval.max));
}

std::string Exact(const PointXy& point) {
  return absl::StrCat(Exact(point.x), ",", Exact(point.y));
}

template <typename T>
std::string Exact(const std::optional<T>& value) {
  return value.has_value() ? Exact(*value) : "none";
}

std::string FillText(const std::vector<float>& fill) {
  return fill.empty() ? Number(0) : Numbers(fill);
}

std::string SamplingText(InterpolationMode interpolation, bool antialias) {
  // Antialiasing affects these two modes only.
  const bool matters = interpolation == InterpolationMode::kBilinear ||
                       interpolation == InterpolationMode::kBicubic;
  return absl::StrCat("mode ", static_cast<int>(interpolation),
                      antialias && matters ? " antialias" : "");
}

std::string PaddingText(const Padding& padding, const std::vector<float>& fill,
                        PaddingMode mode) {
  const std::string fill_text =
      mode == PaddingMode::kConstant ? FillText(fill) : Number(0);
  return absl::StrCat(padding.left, ",", padding.top, ",", padding.right, ",",
                      padding.bottom, " mode ", static_cast<int>(mode),
                      " fill ", fill_text);
}

std::string TransformText(const TransformSpec& transform);

struct Parameters {
  std::string operator()(const PadSpec& op) const {
    return PaddingText(op.padding, op.fill, op.padding_mode);
  }
  std::string operator()(const CropSpec& op) const {
    return absl::StrCat(op.top, ",", op.left, " ", op.height, "x", op.width);
  }
  std::string operator()(const CenterCropSpec& op) const {
    return absl::StrCat(op.height, "x", op.width);
  }
  std::string operator()(const RandomCropSpec& op) const {
    return absl::StrCat(op.height, "x", op.width, " ",
                        PaddingText(op.padding, op.fill, op.padding_mode),
                        op.pad_if_needed ? " if needed" : "");
  }
  std::string operator()(const HorizontalFlipSpec&) const { return ""; }
  std::string operator()(const VerticalFlipSpec&) const { return ""; }
  std::string operator()(const RandomHorizontalFlipSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const RandomVerticalFlipSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const AlternatingFlipSpec&) const { return ""; }
  std::string operator()(const ResizeSpec& op) const {
    return absl::StrCat(op.height, "x", op.width, " shorter ", op.shorter_edge,
                        " max ", op.max_size, " ",
                        SamplingText(op.interpolation, op.antialias));
  }
  std::string operator()(const ResizedCropSpec& op) const {
    return absl::StrCat(op.top, ",", op.left, " ", op.height, "x", op.width,
                        " to ", op.out_height, "x", op.out_width, " ",
                        SamplingText(op.interpolation, op.antialias));
  }
  std::string operator()(const RandomResizedCropSpec& op) const {
    return absl::StrCat(op.height, "x", op.width, " ", Exact(op.scale), " ",
                        Exact(op.ratio), " ",
                        SamplingText(op.interpolation, op.antialias));
  }
  std::string operator()(const RotateSpec& op) const {
    return absl::StrCat(Exact(op.angle), " ",
                        SamplingText(op.interpolation, false),
                        op.expand ? " expand" : "", " center ",
                        Exact(op.center), " fill ", FillText(op.fill));
  }
  std::string operator()(const RandomRotationSpec& op) const {
    return absl::StrCat(Exact(op.degrees), " ",
                        SamplingText(op.interpolation, false),
                        op.expand ? " expand" : "", " center ",
                        Exact(op.center), " fill ", FillText(op.fill));
  }
  std::string operator()(const AffineSpec& op) const {
    return absl::StrCat(Exact(op.angle), " translate ", Exact(op.translate),
                        " scale ", Exact(op.scale), " shear ", Exact(op.shear),
                        " ", SamplingText(op.interpolation, false), " center ",
                        Exact(op.center), " fill ", FillText(op.fill));
  }
  std::string operator()(const RandomAffineSpec& op) const {
    return absl::StrCat(Exact(op.degrees), " translate ", Exact(op.translate),
                        " scale ", Exact(op.scale), " shear ",
                        Exact(op.shear_x), " ", Exact(op.shear_y), " ",
                        SamplingText(op.interpolation, false), " center ",
                        Exact(op.center), " fill ", FillText(op.fill));
  }
  std::string operator()(const ColorJitterSpec& op) const {
    return absl::StrCat(Exact(op.brightness), " ", Exact(op.contrast), " ",
                        Exact(op.saturation), " ", Exact(op.hue));
  }
  std::string operator()(const AdjustBrightnessSpec& op) const {
    return Exact(op.brightness_factor);
  }
  std::string operator()(const AdjustContrastSpec& op) const {
    return Exact(op.contrast_factor);
  }
  std::string operator()(const AdjustSaturationSpec& op) const {
    return Exact(op.saturation_factor);
  }
  std::string operator()(const AdjustHueSpec& op) const {
    return Exact(op.hue_factor);
  }
  std::string operator()(const GrayscaleSpec& op) const {
    return absl::StrCat(op.num_output_channels);
  }
  std::string operator()(const RandomGrayscaleSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const InvertSpec&) const { return ""; }
  std::string operator()(const RandomInvertSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const PosterizeSpec& op) const {
    return absl::StrCat(op.bits);
  }
  std::string operator()(const RandomPosterizeSpec& op) const {
    return absl::StrCat(op.bits, " ", Number(op.p));
  }
  std::string operator()(const SolarizeSpec& op) const {
    return Exact(op.threshold);
  }
  std::string operator()(const RandomSolarizeSpec& op) const {
    return absl::StrCat(Exact(op.threshold), " ", Number(op.p));
  }
  std::string operator()(const AdjustSharpnessSpec& op) const {
    return Exact(op.sharpness_factor);
  }
  std::string operator()(const RandomAdjustSharpnessSpec& op) const {
    return absl::StrCat(Exact(op.sharpness_factor), " ", Number(op.p));
  }
  std::string operator()(const AutocontrastSpec&) const { return ""; }
  std::string operator()(const RandomAutocontrastSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const EqualizeSpec&) const { return ""; }
  std::string operator()(const RandomEqualizeSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const GaussianBlurSpec& op) const {
    return absl::StrCat(op.kernel_height, "x", op.kernel_width, " ",
                        Exact(op.sigma));
  }
  std::string operator()(const EraseSpec& op) const {
    return absl::StrCat(op.top, ",", op.left, " ", op.height, "x", op.width,
                        " value ", FillText(op.value));
  }
  std::string operator()(const RandomErasingSpec& op) const {
    return absl::StrCat(Number(op.p), " ", Exact(op.scale), " ",
                        Exact(op.ratio), " value ",
                        op.is_value_random ? "random" : FillText(op.value));
  }
  std::string operator()(const CutoutSpec& op) const {
    return absl::StrCat(op.size, " fill ", FillText(op.fill));
  }
  std::string operator()(const RandomApplySpec& op) const {
    std::string text = absl::StrCat(Number(op.p), " {\n");
    for (const TransformSpec& transform : op.transforms) {
      absl::StrAppend(&text, TransformText(transform));
    }
    return absl::StrCat(text, "}");
  }
  std::string operator()(const MixUpSpec& op) const {
    return BatchText(op.alpha, op.num_classes, op.per_sample, op.labels);
  }
  std::string operator()(const CutMixSpec& op) const {
    return BatchText(op.alpha, op.num_classes, op.per_sample, op.labels);
  }
  std::string operator()(const ToDtypeSpec& op) const {
    return absl::StrCat(DtypeName(op.dtype), op.scale ? " scale" : "");
  }
  std::string operator()(const NormalizeSpec& op) const {
    return absl::StrCat(Numbers(op.mean), " ", Numbers(op.std));
  }

 private:
  static std::string BatchText(double alpha, int64_t num_classes,
                               bool per_sample, const std::string& labels) {
    return absl::StrCat(Exact(alpha), " ", num_classes,
                        per_sample ? " per sample " : " ", labels.size(), " ",
                        labels);
  }
};

std::string TransformText(const TransformSpec& transform) {
  std::string text = absl::StrCat(TransformName(transform), " ",
                                  std::visit(Parameters(), transform.op));
  if (transform.draw_id != 0) {
    absl::StrAppend(&text, " draw ", transform.draw_id);
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

std::string TransformsHash(absl::Span<const FieldPipeline> pipelines) {
  std::string text = absl::StrCat(kVersion, "\n");
  for (const FieldPipeline& pipeline : pipelines) {
    // The length separates names with line breaks from the text that follows.
    absl::StrAppend(&text, "field ", pipeline.field.size(), " ", pipeline.field,
                    pipeline.layout == Layout::kNhwc ? " NHWC\n" : " NCHW\n");
    for (const TransformSpec& op : pipeline.transforms) {
      absl::StrAppend(&text, TransformText(op));
    }
  }
  return HexDigest(text);
}

}  // namespace datasetd
