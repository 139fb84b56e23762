// The ops of a pipeline as plain structs: datasetd.v1.Transform without
// protobuf. Names, defaults and meaning are those of torchvision.transforms.v2.
// Values are checked by CompileField (server/pipeline/pipeline.h).

#ifndef DATASETD_SERVER_DATASET_TRANSFORM_SPEC_H_
#define DATASETD_SERVER_DATASET_TRANSFORM_SPEC_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "server/dataset/colour_spec.h"
#include "server/dataset/geometry_spec.h"
#include "server/dataset/op_family.h"

namespace datasetd {

struct ToDtypeSpec {
  static constexpr const char* kName = "ToDtype";
  static constexpr OpFamily kFamily = OpFamily::kNumber;
  static constexpr bool kIsRandom = false;
  Dtype dtype = Dtype::kFloat32;
  bool scale = false;
};

struct NormalizeSpec {
  static constexpr const char* kName = "Normalize";
  static constexpr OpFamily kFamily = OpFamily::kNumber;
  static constexpr bool kIsRandom = false;
  std::vector<double> mean;
  std::vector<double> std;
};

// Lambda is drawn once per batch, or per sample.
struct MixUpSpec {
  static constexpr const char* kName = "MixUp";
  static constexpr OpFamily kFamily = OpFamily::kBatch;
  static constexpr bool kIsRandom = true;
  double alpha = 1.0;
  int64_t num_classes = 0;
  bool per_sample = false;
  std::string labels = "label";  // the field; becomes float32 [num_classes]
};

struct CutMixSpec {
  static constexpr const char* kName = "CutMix";
  static constexpr OpFamily kFamily = OpFamily::kBatch;
  static constexpr bool kIsRandom = true;
  double alpha = 1.0;
  int64_t num_classes = 0;
  bool per_sample = false;
  std::string labels = "label";
};

struct TransformSpec;

// Applies all ops with probability p, or none.
struct RandomApplySpec {
  static constexpr const char* kName = "RandomApply";
  static constexpr OpFamily kFamily = OpFamily::kGroup;
  static constexpr bool kIsRandom = true;
  std::vector<TransformSpec> transforms;
  double p = 0.5;
};

using OpSpec = std::variant<
    PadSpec, CropSpec, CenterCropSpec, RandomCropSpec, HorizontalFlipSpec,
    VerticalFlipSpec, RandomHorizontalFlipSpec, RandomVerticalFlipSpec,
    AlternatingFlipSpec, ResizeSpec, ResizedCropSpec, RandomResizedCropSpec,
    RotateSpec, RandomRotationSpec, AffineSpec, RandomAffineSpec,
    ColorJitterSpec, AdjustBrightnessSpec, AdjustContrastSpec,
    AdjustSaturationSpec, AdjustHueSpec, GrayscaleSpec, RandomGrayscaleSpec,
    InvertSpec, RandomInvertSpec, PosterizeSpec, RandomPosterizeSpec,
    SolarizeSpec, RandomSolarizeSpec, AdjustSharpnessSpec,
    RandomAdjustSharpnessSpec, AutocontrastSpec, RandomAutocontrastSpec,
    EqualizeSpec, RandomEqualizeSpec, GaussianBlurSpec, EraseSpec,
    RandomErasingSpec, CutoutSpec, RandomApplySpec, MixUpSpec, CutMixSpec,
    ToDtypeSpec, NormalizeSpec>;

// Maximum draw_id.
inline constexpr uint32_t kMaxDrawId = 0xFFFF;

struct TransformSpec {
  TransformSpec() = default;
  // Converts any op spec implicitly.
  template <typename Op,
            typename = decltype(std::remove_reference_t<Op>::kName)>
  TransformSpec(Op&& op)  // NOLINT: implicit
      : op(std::forward<Op>(op)) {}

  OpSpec op;
  // Ops of one feed with the same non-zero draw_id draw the same random numbers
  // for a sample, whatever their field and position.
  uint32_t draw_id = 0;
};

// The second counter word of an op's draws; see docs/randomness.md. Fields, and
// positions in a field's list including RandomApply's ops, are below 256.
inline constexpr uint32_t kSharedOpIndex = 0x10000;
inline constexpr int kViewShift = 17;
inline uint32_t OpIndex(uint32_t field_index, uint32_t position,
                        uint32_t draw_id, uint32_t view) {
  return view << kViewShift | (draw_id != 0 ? kSharedOpIndex | draw_id
                                            : field_index << 8 | position);
}

// Returns "RandomCrop", for example.
inline const char* TransformName(const TransformSpec& transform) {
  return std::visit([](const auto& op) { return op.kName; }, transform.op);
}

inline OpFamily TransformFamily(const TransformSpec& transform) {
  return std::visit([](const auto& op) { return op.kFamily; }, transform.op);
}

// If false, the op may be a pretransform.
inline bool IsRandom(const TransformSpec& transform) {
  return std::visit([](const auto& op) { return op.kIsRandom; }, transform.op);
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_TRANSFORM_SPEC_H_
