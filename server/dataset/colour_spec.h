// Specs of colour, neighbourhood and erasing ops; see
// server/dataset/transform_spec.h.

#ifndef DATASETD_SERVER_DATASET_COLOUR_SPEC_H_
#define DATASETD_SERVER_DATASET_COLOUR_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/dataset/op_family.h"

namespace datasetd {

// Applies the adjustments that are set, in random order. Brightness, contrast
// and saturation are factors; hue is an offset, in turns.
struct ColorJitterSpec {
  static constexpr const char* kName = "ColorJitter";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  std::optional<Interval> brightness;
  std::optional<Interval> contrast;
  std::optional<Interval> saturation;
  std::optional<Interval> hue;
};

struct AdjustBrightnessSpec {
  static constexpr const char* kName = "AdjustBrightness";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double brightness_factor = 0.0;
};

struct AdjustContrastSpec {
  static constexpr const char* kName = "AdjustContrast";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double contrast_factor = 0.0;
};

struct AdjustSaturationSpec {
  static constexpr const char* kName = "AdjustSaturation";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double saturation_factor = 0.0;
};

struct AdjustHueSpec {
  static constexpr const char* kName = "AdjustHue";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double hue_factor = 0.0;  // -0.5 to 0.5
};

struct GrayscaleSpec {
  static constexpr const char* kName = "Grayscale";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  int64_t num_output_channels = 1;  // or 3
};

struct RandomGrayscaleSpec {
  static constexpr const char* kName = "RandomGrayscale";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double p = 0.1;
};

struct InvertSpec {
  static constexpr const char* kName = "Invert";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
};

struct RandomInvertSpec {
  static constexpr const char* kName = "RandomInvert";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
};

struct PosterizeSpec {
  static constexpr const char* kName = "Posterize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  int64_t bits = 0;  // 0 to 8
};

struct RandomPosterizeSpec {
  static constexpr const char* kName = "RandomPosterize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  int64_t bits = 0;
  double p = 0.5;
};

struct SolarizeSpec {
  static constexpr const char* kName = "Solarize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double threshold = 0.0;  // in the image's units
};

struct RandomSolarizeSpec {
  static constexpr const char* kName = "RandomSolarize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double threshold = 0.0;
  double p = 0.5;
};

struct AdjustSharpnessSpec {
  static constexpr const char* kName = "AdjustSharpness";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
  double sharpness_factor = 0.0;
};

struct RandomAdjustSharpnessSpec {
  static constexpr const char* kName = "RandomAdjustSharpness";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double sharpness_factor = 0.0;
  double p = 0.5;
};

struct AutocontrastSpec {
  static constexpr const char* kName = "Autocontrast";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
};

struct RandomAutocontrastSpec {
  static constexpr const char* kName = "RandomAutocontrast";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
};

struct EqualizeSpec {
  static constexpr const char* kName = "Equalize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = false;
};

struct RandomEqualizeSpec {
  static constexpr const char* kName = "RandomEqualize";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
};

struct GaussianBlurSpec {
  static constexpr const char* kName = "GaussianBlur";
  static constexpr OpFamily kFamily = OpFamily::kColour;
  static constexpr bool kIsRandom = true;
  int64_t kernel_height = 0;  // odd
  int64_t kernel_width = 0;
  Interval sigma = {0.1, 2.0};
};

struct EraseSpec {
  static constexpr const char* kName = "Erase";
  static constexpr OpFamily kFamily = OpFamily::kErase;
  static constexpr bool kIsRandom = false;
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> value;  // one, or one per channel; empty is 0
};

struct RandomErasingSpec {
  static constexpr const char* kName = "RandomErasing";
  static constexpr OpFamily kFamily = OpFamily::kErase;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
  Interval scale = {0.02, 0.33};
  Interval ratio = {0.3, 3.3};
  std::vector<float> value;      // as in EraseSpec
  bool is_value_random = false;  // standard normal, per pixel
};

struct CutoutSpec {
  static constexpr const char* kName = "Cutout";
  static constexpr OpFamily kFamily = OpFamily::kErase;
  static constexpr bool kIsRandom = true;
  int64_t size = 0;
  std::vector<float> fill;  // as EraseSpec's value
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_COLOUR_SPEC_H_
