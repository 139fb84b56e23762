#include "tests/benchmarks/kernel_cost/workloads.h"

#include <memory>
#include <utility>

#include "server/dataset/field_spec.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

Transforms Normalized(Transforms ops, Dtype dtype) {
  ops.push_back(Op("to_dtype { dtype: $0 scale: true }", dtype));
  ops.push_back(Op(
      "normalize { mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] }"));
  return ops;
}

// Inside other ops, too.
constexpr char kJitter[] =
    "color_jitter { brightness { min: 0.6 max: 1.4 } "
    "contrast { min: 0.6 max: 1.4 } saturation { min: 0.6 max: 1.4 } "
    "hue { min: -0.1 max: 0.1 } }";
constexpr char kBlur[] =
    "gaussian_blur { kernel_size { height: 23 width: 23 } }";

}  // namespace

std::vector<Workload> CostWorkloads() {
  constexpr Dtype kHalf = Dtype::kFloat16;
  constexpr Dtype kFloat = Dtype::kFloat32;
  const v1::Transform flip = Op("random_horizontal_flip {}");
  const v1::Transform crop224 =
      Op("random_resized_crop { size { height: 224 width: 224 } }");
  const v1::Transform blur = Op(kBlur);
  constexpr char kPadded[] =
      "random_crop { height: 32 width: 32 "
      "padding { left: 4 top: 4 right: 4 bottom: 4 } padding_mode: $0 }";
  const v1::Transform padded = Op(kPadded, "PADDING_MODE_CONSTANT");
  const v1::Transform reflected = Op(kPadded, "PADDING_MODE_REFLECT");
  return {
      {"flip-normalize-half-nhwc", 224, 8, Layout::kNhwc,
       Normalized({flip}, kHalf), 256},
      {"flip-normalize-half-nchw", 224, 8, Layout::kNchw,
       Normalized({flip}, kHalf), 256},
      {"crop-flip-float",
       256,
       8,
       Layout::kNchw,
       {Op("random_crop { height: 224 width: 224 }"), flip,
        Op("to_dtype { dtype: $0 scale: true }", kFloat)},
       256},
      {"copy-flip-uint8", 224, 8, Layout::kNhwc, {flip}, 256},
      {"cifar-pad-crop-flip", 32, 32, Layout::kNhwc,
       Normalized({padded, flip}, kHalf), 2048},
      {"cifar-reflect-crop-flip", 32, 32, Layout::kNhwc,
       Normalized({reflected, flip}, kHalf), 2048},
      {"random-resized-crop", 256, 2, Layout::kNchw,
       Normalized({crop224, flip}, kFloat)},
      {"resize-512", 512, 1, Layout::kNchw,
       Normalized({Op("resize { size { height: 224 width: 224 } }")}, kFloat)},
      {"color-jitter", 224, 2, Layout::kNchw,
       Normalized({Op(kJitter)}, kFloat)},
      {"rotation-bilinear", 224, 2, Layout::kNchw,
       Normalized(
           {Op("random_rotation { degrees { min: -15.0 max: 15.0 } "
               "interpolation: INTERPOLATION_MODE_BILINEAR fill: 0.0 }")},
           kFloat)},
      {"gaussian-blur-23", 224, 1, Layout::kNchw, Normalized({blur}, kFloat)},
      {"simclr", 256, 2, Layout::kNchw,
       Normalized({crop224, flip,
                   Op("random_apply { transforms { $0 } p: 0.8 }", kJitter),
                   Op("random_grayscale { p: 0.2 }"),
                   Op("random_apply { transforms { $0 } p: 0.5 }", kBlur)},
                  kFloat)},
      {"cifar-crop-flip-jitter", 32, 16, Layout::kNchw,
       Normalized({Op("random_resized_crop { size { height: 32 width: 32 } }"),
                   flip, Op(kJitter)},
                  kFloat)},
      {"log-mel",
       16000,
       2,
       Layout::kNchw,
       {Op("to_dtype { dtype: $0 scale: true }", kFloat),
        Op("mel_spectrogram { n_fft: 512 hop_length: 160 n_mels: 64 }"),
        Op("amplitude_to_db { top_db: 80 }")}},
  };
}

absl::StatusOr<FieldProgram> Compile(const Workload& workload) {
  FieldSpec field = {.name = "image",
                     .dtype = Dtype::kUint8,
                     .shape = {workload.size, workload.size, 3},
                     .is_image = true};
  if (OptionsOf(workload.ops.back()).family() == v1::OP_FAMILY_SEQUENCE) {
    field = {.name = "audio", .dtype = Dtype::kInt16, .shape = {workload.size}};
  }
  auto program = CompileField(field, 0, workload.ops, workload.layout);
  if (program.ok()) program->sample_stride_bytes = field.sample_bytes();
  return program;
}

absl::StatusOr<double> ReadShare(const FieldProgram& field) {
  constexpr int kSamples = 1000;
  const auto program = std::make_unique<AugmentProgram>();
  program->seed = 7;
  program->num_fields = 1;
  program->fields[0] = field;
  double sum = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const auto draws = ExplainSample(*program, 0, sample);
    if (!draws.ok()) return draws.status();
    double share = 1.0;
    if (!draws->empty()) {
      for (const auto& [name, values] : draws->front().parameters) {
        if (name == "height") share *= values[0] / field.in_height;
        if (name == "width") share *= values[0] / field.in_width;
      }
    }
    sum += share;
  }
  return sum / kSamples;
}

}  // namespace datasetd
