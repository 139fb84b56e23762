// Microseconds per sample of chains on one core of the host.

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/params.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

constexpr int kNumResident = 64;
constexpr int kBatchSize = 16;
constexpr int kNumSlots = 4;
// The backend aligns slots and scratch memory as much.
constexpr size_t kAlignment = 256;

template <typename T>
T* Aligned(T* data) {
  return reinterpret_cast<T*>(
      (reinterpret_cast<uintptr_t>(data) + kAlignment - 1) &
      ~uintptr_t{kAlignment - 1});
}

void Run(benchmark::State& state, int height, int width, Transforms ops) {
  const FieldSpec field = {.name = "image",
                           .dtype = Dtype::kUint8,
                           .shape = {height, width, 3},
                           .is_image = true};
  auto compiled = CompileField(field, 0, ops, Layout::kNchw);
  if (!compiled.ok()) {
    state.SkipWithError(compiled.status().ToString().c_str());
    return;
  }
  std::mt19937 engine(1);
  std::vector<uint8_t> source(field.sample_bytes() * kNumResident);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(engine());
  auto program = std::make_unique<AugmentProgram>();
  program->indices_offset_bytes = -1;
  program->num_fields = 1;
  program->fields[0] = *compiled;
  program->fields[0].source = source.data();
  program->fields[0].sample_stride_bytes = field.sample_bytes();
  const ScratchPlan plan = PlanScratch(*program, 1);
  std::vector<uint8_t> scratch(plan.size_bytes + kAlignment);
  plan.Give(Aligned(scratch.data()), program.get());
  // Slots in turn, as a ring has them: too many for the second-level cache.
  const size_t slot_elements = size_t{kBatchSize} * compiled->out_height *
                               compiled->out_width * compiled->out_channels;
  std::vector<float> ring(kNumSlots * slot_elements + kAlignment);
  float* const slots = Aligned(ring.data());
  std::vector<int64_t> indices(kBatchSize);
  BatchTask batch = {};
  batch.indices = indices.data();
  batch.num_samples = kBatchSize;
  for (auto _ : state) {
    for (int64_t& index : indices) index = engine() % kNumResident;
    batch.slot = reinterpret_cast<uint8_t*>(slots + batch.epoch % kNumSlots *
                                                        slot_elements);
    AugmentHost(*program, batch);
    benchmark::ClobberMemory();
    ++batch.epoch;
  }
  state.counters["us_per_sample"] = benchmark::Counter(
      1e-6 * kBatchSize, benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
}

void Run(benchmark::State& state, int size, Transforms ops) {
  Run(state, size, size, std::move(ops));
}

Transforms WithNormalize(Transforms ops) {
  ops.push_back(Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"));
  ops.push_back(Op(
      "normalize { mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] }"));
  return ops;
}

void BM_Resize32To224Normalize(benchmark::State& state) {
  Run(state, 32,
      WithNormalize({Op("resize { size { height: 224 width: 224 } }")}));
}
BENCHMARK(BM_Resize32To224Normalize);

void BM_RandomResizedCrop224FlipNormalize(benchmark::State& state) {
  Run(state, 256,
      WithNormalize(
          {Op("random_resized_crop { size { height: 224 width: 224 } }"),
           Op("random_horizontal_flip {}")}));
}
BENCHMARK(BM_RandomResizedCrop224FlipNormalize);

void BM_Resize320To160Normalize(benchmark::State& state) {
  Run(state, 320,
      WithNormalize({Op("resize { size { height: 160 width: 160 } }")}));
}
BENCHMARK(BM_Resize320To160Normalize);

void BM_Rotation160Normalize(benchmark::State& state) {
  Run(state, 160,
      WithNormalize(
          {Op("random_rotation { degrees { min: -10.0 max: 10.0 } }")}));
}
BENCHMARK(BM_Rotation160Normalize);

void BM_BilinearRotation160Normalize(benchmark::State& state) {
  Run(state, 160,
      WithNormalize({Op("random_rotation { degrees { min: -10.0 max: 10.0 } "
                        "interpolation: INTERPOLATION_MODE_BILINEAR }")}));
}
BENCHMARK(BM_BilinearRotation160Normalize);

void BM_ColorJitter160Normalize(benchmark::State& state) {
  constexpr char around[] = "min: 0.95 max: 1.05";
  Run(state, 160,
      WithNormalize({Op("color_jitter { brightness { $0 } contrast { $0 } "
                        "saturation { $0 } hue { min: -0.05 max: 0.05 } }",
                        around)}));
}
BENCHMARK(BM_ColorJitter160Normalize);

void BM_Resize160FlipsRotationColorJitter(benchmark::State& state) {
  constexpr char around[] = "min: 0.95 max: 1.05";
  Run(state, 240, 320,
      WithNormalize({Op("resize { size { height: 160 width: 160 } }"),
                     Op("random_horizontal_flip {}"),
                     Op("random_vertical_flip {}"),
                     Op("random_rotation { degrees { min: -10.0 max: 10.0 } }"),
                     Op("color_jitter { brightness { $0 } contrast { $0 } "
                        "saturation { $0 } hue { min: -0.05 max: 0.05 } }",
                        around)}));
}
BENCHMARK(BM_Resize160FlipsRotationColorJitter);

void BM_Flip224Brightness(benchmark::State& state) {
  Run(state, 224,
      WithNormalize({Op("random_horizontal_flip {}"),
                     Op("adjust_brightness { brightness_factor: 1.1 }")}));
}
BENCHMARK(BM_Flip224Brightness);

void BM_BlurSharpness224(benchmark::State& state) {
  Run(state, 224,
      WithNormalize({Op("gaussian_blur { kernel_size { height: 5 width: 5 } }"),
                     Op("adjust_sharpness { sharpness_factor: 1.5 }")}));
}
BENCHMARK(BM_BlurSharpness224);

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();
