// The ops of a pipeline, as plain structs: datasetd.v1.Transform without
// protobuf. Names, defaults and meaning are those of
// torchvision.transforms.v2. Nothing is checked here; CompileField does
// (server/core/pipeline.h).

#ifndef DATASETD_SERVER_CORE_TRANSFORM_SPEC_H_
#define DATASETD_SERVER_CORE_TRANSFORM_SPEC_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "cuda/dtype.h"
#include "cuda/kernels/params.h"

namespace datasetd {

// Pixels added on each side.
struct Padding {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;
};

struct PadSpec {
  Padding padding;
  // In the units of the image at this op; one value, or one per channel; empty
  // is 0. Used with kConstant only.
  std::vector<float> fill;
  PaddingMode padding_mode = PaddingMode::kConstant;
};

struct CenterCropSpec {
  int64_t height = 0;
  int64_t width = 0;
};

struct RandomCropSpec {
  int64_t height = 0;
  int64_t width = 0;
  Padding padding;
  bool pad_if_needed = false;
  std::vector<float> fill;  // as in PadSpec
  PaddingMode padding_mode = PaddingMode::kConstant;
};

struct RandomHorizontalFlipSpec {
  double p = 0.5;
};

struct RandomVerticalFlipSpec {
  double p = 0.5;
};

struct AlternatingFlipSpec {};

struct ToDtypeSpec {
  Dtype dtype = Dtype::kFloat32;
  bool scale = false;
};

struct NormalizeSpec {
  std::vector<double> mean;
  std::vector<double> std;
};

using TransformSpec =
    std::variant<PadSpec, CenterCropSpec, RandomCropSpec,
                 RandomHorizontalFlipSpec, RandomVerticalFlipSpec,
                 AlternatingFlipSpec, ToDtypeSpec, NormalizeSpec>;

// "RandomCrop".
struct TransformNameVisitor {
  const char* operator()(const PadSpec&) const { return "Pad"; }
  const char* operator()(const CenterCropSpec&) const { return "CenterCrop"; }
  const char* operator()(const RandomCropSpec&) const { return "RandomCrop"; }
  const char* operator()(const RandomHorizontalFlipSpec&) const {
    return "RandomHorizontalFlip";
  }
  const char* operator()(const RandomVerticalFlipSpec&) const {
    return "RandomVerticalFlip";
  }
  const char* operator()(const AlternatingFlipSpec&) const {
    return "AlternatingFlip";
  }
  const char* operator()(const ToDtypeSpec&) const { return "ToDtype"; }
  const char* operator()(const NormalizeSpec&) const { return "Normalize"; }
};
inline const char* TransformName(const TransformSpec& op) {
  return std::visit(TransformNameVisitor(), op);
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_TRANSFORM_SPEC_H_
