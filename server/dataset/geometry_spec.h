// Specs of the ops that move or resample pixels; see
// server/dataset/transform_spec.h. Angles are in degrees. Fills are in the
// units of the image at the op: one value, or one per channel; empty is 0.

#ifndef DATASETD_SERVER_DATASET_GEOMETRY_SPEC_H_
#define DATASETD_SERVER_DATASET_GEOMETRY_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/op_family.h"

namespace datasetd {

// Pixels added on each side.
struct Padding {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;
};

struct PadSpec {
  static constexpr const char* kName = "Pad";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  Padding padding;
  std::vector<float> fill;  // for kConstant only
  PaddingMode padding_mode = PaddingMode::kConstant;
};

// May extend beyond the image, where pixels are zero.
struct CropSpec {
  static constexpr const char* kName = "Crop";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

struct CenterCropSpec {
  static constexpr const char* kName = "CenterCrop";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  int64_t height = 0;
  int64_t width = 0;
};

struct RandomCropSpec {
  static constexpr const char* kName = "RandomCrop";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  int64_t height = 0;
  int64_t width = 0;
  Padding padding;
  bool pad_if_needed = false;
  std::vector<float> fill;  // as in PadSpec
  PaddingMode padding_mode = PaddingMode::kConstant;
};

struct HorizontalFlipSpec {
  static constexpr const char* kName = "HorizontalFlip";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
};

struct VerticalFlipSpec {
  static constexpr const char* kName = "VerticalFlip";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
};

struct RandomHorizontalFlipSpec {
  static constexpr const char* kName = "RandomHorizontalFlip";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
};

struct RandomVerticalFlipSpec {
  static constexpr const char* kName = "RandomVerticalFlip";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  double p = 0.5;
};

struct AlternatingFlipSpec {
  static constexpr const char* kName = "AlternatingFlip";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
};

// Resizes to height x width if they are not 0. Else, if `shorter_edge` is not
// 0, resizes the shorter edge to it, limiting the longer edge to `max_size` if
// that is not 0. Else resizes the longer edge to `max_size`.
struct ResizeSpec {
  static constexpr const char* kName = "Resize";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  int64_t height = 0;
  int64_t width = 0;
  int64_t shorter_edge = 0;
  int64_t max_size = 0;
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  bool antialias = true;
};

// Crops a window and resizes it.
struct ResizedCropSpec {
  static constexpr const char* kName = "ResizedCrop";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  bool antialias = true;
};

struct RandomResizedCropSpec {
  static constexpr const char* kName = "RandomResizedCrop";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  int64_t height = 0;
  int64_t width = 0;
  Interval scale = {0.08, 1.0};             // of the image's area
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};  // width over height
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  bool antialias = true;
};

struct RotateSpec {
  static constexpr const char* kName = "Rotate";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  double angle = 0.0;  // counter-clockwise
  InterpolationMode interpolation = InterpolationMode::kNearest;
  bool expand = false;
  std::optional<PointXy> center;  // pixels from the corner; unset: the middle
  std::vector<float> fill;
};

struct RandomRotationSpec {
  static constexpr const char* kName = "RandomRotation";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  Interval degrees;  // counter-clockwise
  InterpolationMode interpolation = InterpolationMode::kNearest;
  bool expand = false;
  std::optional<PointXy> center;
  std::vector<float> fill;
};

struct AffineSpec {
  static constexpr const char* kName = "Affine";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = false;
  double angle = 0.0;  // clockwise
  PointXy translate;   // pixels
  double scale = 1.0;
  PointXy shear;  // degrees
  InterpolationMode interpolation = InterpolationMode::kNearest;
  std::vector<float> fill;
  std::optional<PointXy> center;
};

struct RandomAffineSpec {
  static constexpr const char* kName = "RandomAffine";
  static constexpr OpFamily kFamily = OpFamily::kGeometry;
  static constexpr bool kIsRandom = true;
  Interval degrees;                  // clockwise
  std::optional<PointXy> translate;  // maximum, parts of the size
  std::optional<Interval> scale;
  std::optional<Interval> shear_x;  // degrees
  std::optional<Interval> shear_y;
  InterpolationMode interpolation = InterpolationMode::kNearest;
  std::vector<float> fill;
  std::optional<PointXy> center;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_GEOMETRY_SPEC_H_
