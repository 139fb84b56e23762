#include "tests/benchmarks/kernel_cost/workloads.h"

#include <memory>
#include <string>
#include <utility>

#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/op_table.h"
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
  const v1::Transform scaled = Op("to_dtype { dtype: $0 scale: true }", kFloat);
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
      {.name = "log-mel",
       .size = 16000,
       .num_samples = 2,
       .ops = {scaled,
               Op("mel_spectrogram { n_fft: 512 hop_length: 160 n_mels: 64 }"),
               Op("amplitude_to_db { top_db: 80 }")},
       .is_waveform = true},
      {.name = "window-copy",
       .size = 16000,
       .num_samples = 8,
       .num_launched = 256,
       .is_waveform = true},
      {.name = "crop-copy",
       .size = 20000,
       .num_samples = 8,
       .num_launched = 256,
       .is_waveform = true,
       .crop_length = 16000},
      {.name = "add-noise",
       .size = 16000,
       .num_samples = 2,
       .ops = {scaled, Op("add_noise {}")},
       .is_waveform = true},
  };
}

absl::StatusOr<FieldProgram> Compile(const Workload& workload) {
  FieldSpec field = {.name = "image",
                     .dtype = Dtype::kUint8,
                     .shape = {workload.size, workload.size, 3},
                     .is_image = true};
  if (workload.is_waveform) {
    field = {.name = "audio", .dtype = Dtype::kInt16, .shape = {workload.size}};
  }
  const FieldSpec noise = field;
  const int64_t sample_bytes = field.sample_bytes();
  if (workload.crop_length > 0) field.shape = {workload.crop_length};
  auto program = CompileField(
      field, 0, workload.ops, workload.layout, {}, {}, 0,
      [&](const v1::AddNoise&, const std::string&) {
        return NoiseField{.spec = noise, .num_samples = workload.num_samples};
      });
  if (!program.ok()) return program;
  program->sample_stride_bytes = sample_bytes;
  if (workload.is_waveform && workload.ops.empty()) {
    program->out_dtype = Dtype::kInt64;
  }
  if (workload.crop_length > 0) {
    program->crop_kind = CropKind::kRandom;
    program->crop_op_index = kCropOpIndex;
    program->crop_length = workload.crop_length;
    program->step_elements = 1;
    program->sample_steps = workload.size;
  }
  return program;
}

void SetSource(const uint8_t* source, FieldProgram* field) {
  field->source = source;
  for (int s = 0; s < field->num_steps; ++s) {
    if (field->steps[s].kind != StepKind::kAddNoise) continue;
    auto noise = ParamsAs<AddNoiseParams>(field->steps[s]);
    noise.source = source;
    SetParams(noise, &field->steps[s]);
  }
}

absl::StatusOr<double> ReadShare(const FieldProgram& field) {
  if (field.crop_length > 0)
    return 1.0 * field.crop_length / field.sample_steps;
  for (int s = 0; s < field.num_steps; ++s) {
    if (field.steps[s].kind == StepKind::kAddNoise) return 2.0;
  }
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
