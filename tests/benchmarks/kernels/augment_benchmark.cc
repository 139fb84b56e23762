// Speed of AugmentHost on one core, and memcpy of the same bytes beside it.
//
// bytes_per_second counts what must move: the pixels read and the batch
// written. Slots rotate through 64 MiB, as a feed's ring does.

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "benchmark/benchmark.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {
namespace {

struct Shape {
  int size_in;
  int padding;
  int size_out;
  int batch_size;
  int num_samples;
  Dtype dtype;
  Layout layout;
};

Shape Cifar(Dtype dtype, Layout layout) {
  return {32, 4, 32, 512, 50000, dtype, layout};
}

Shape Image224(Dtype dtype, Layout layout) {
  return {256, 0, 224, 64, 1024, dtype, layout};
}

FieldProgram MakeField(const Shape& shape, const uint8_t* source) {
  FieldProgram field = {};
  field.source = source;
  field.sample_stride_bytes = int64_t{shape.size_in} * shape.size_in * 3;
  field.in_dtype = Dtype::kUint8;
  field.out_dtype = shape.dtype;
  field.layout = shape.layout;
  field.is_image = true;
  field.in_height = field.in_width = shape.size_in;
  field.out_height = field.out_width = shape.size_out;
  field.channels = 3;
  const int padded = shape.size_in + 2 * shape.padding;
  if (shape.padding > 0) {
    Move& pad = field.moves[field.num_moves++];
    pad.kind = MoveKind::kPad;
    pad.padding_mode = PaddingMode::kConstant;
    pad.in_height = pad.in_width = shape.size_in;
    pad.out_height = pad.out_width = padded;
    pad.top = pad.left = shape.padding;
  }
  Move& crop = field.moves[field.num_moves++];
  crop.kind = MoveKind::kRandomCrop;
  crop.op_index = 0;
  crop.in_height = crop.in_width = padded;
  crop.out_height = crop.out_width = shape.size_out;
  Move& flip = field.moves[field.num_moves++];
  flip.kind = MoveKind::kHorizontalFlip;
  flip.op_index = 1;
  flip.in_height = flip.in_width = shape.size_out;
  flip.out_height = flip.out_width = shape.size_out;
  flip.probability = 0.5f;
  field.num_value_ops = 2;
  field.value_ops[0].kind = ValueOpKind::kDivide;
  field.value_ops[0].divisor = 255.0f;
  field.value_ops[1].kind = ValueOpKind::kNormalize;
  const float mean[3] = {0.4914f, 0.4822f, 0.4465f};
  const float std[3] = {0.2470f, 0.2435f, 0.2616f};
  for (int c = 0; c < 3; ++c) {
    field.value_ops[1].mean[c] = mean[c];
    field.value_ops[1].std[c] = std[c];
    // Black, as the usual recipe has it: padded before it is normalised.
    field.moves[0].fill[c] = (0.0f - mean[c]) / std[c];
  }
  return field;
}

class Fixture {
 public:
  explicit Fixture(const Shape& shape)
      : shape_(shape),
        source_(static_cast<size_t>(shape.num_samples) * shape.size_in *
                shape.size_in * 3),
        indices_(shape.num_samples) {
    std::mt19937 engine(1);
    for (uint8_t& byte : source_) byte = static_cast<uint8_t>(engine());
    for (int64_t& index : indices_) index = engine() % shape.num_samples;
    field_ = MakeField(shape, source_.data());
    in_bytes_ = int64_t{3} * shape.size_out * shape.size_out;
    out_bytes_ = in_bytes_ * DtypeSizeBytes(shape.dtype);
    slot_bytes_ = out_bytes_ * shape.batch_size;
    num_slots_ = (int64_t{64} << 20) / slot_bytes_;
    if (num_slots_ < 2) num_slots_ = 2;
    ring_.resize(num_slots_ * slot_bytes_ + 256);
    const uintptr_t address = reinterpret_cast<uintptr_t>(ring_.data());
    slots_ = ring_.data() + (256 - address % 256) % 256;
  }

  AugmentProgram program() const {
    AugmentProgram program = {};
    program.seed = 1;
    program.indices_offset_bytes = -1;
    program.num_fields = 1;
    program.fields[0] = field_;
    return program;
  }

  BatchTask NextBatch() {
    BatchTask batch = {};
    batch.slot = slots_ + (batch_index_ % num_slots_) * slot_bytes_;
    const int64_t batches = shape_.num_samples / shape_.batch_size;
    batch.indices =
        indices_.data() + (batch_index_ % batches) * shape_.batch_size;
    batch.num_samples = shape_.batch_size;
    batch.epoch = static_cast<uint64_t>(batch_index_ / batches);
    ++batch_index_;
    return batch;
  }

  // Bytes read and written for a sample.
  int64_t moved_bytes() const { return in_bytes_ + out_bytes_; }

  void Report(benchmark::State& state) const {
    const int64_t samples = state.iterations() * shape_.batch_size;
    state.SetItemsProcessed(samples);
    state.SetBytesProcessed(samples * moved_bytes());
  }

 private:
  Shape shape_;
  std::vector<uint8_t> source_;
  std::vector<int64_t> indices_;
  std::vector<uint8_t> ring_;
  FieldProgram field_;
  uint8_t* slots_;
  int64_t in_bytes_, out_bytes_, slot_bytes_, num_slots_;
  int64_t batch_index_ = 0;
};

void BM_Augment(benchmark::State& state, Shape shape) {
  Fixture fixture(shape);
  const AugmentProgram program = fixture.program();
  for (auto _ : state) {
    AugmentHost(program, fixture.NextBatch());
    benchmark::ClobberMemory();
  }
  fixture.Report(state);
}

// Half of the bytes that the kernel moves, copied: as many bytes move.
void BM_Memcpy(benchmark::State& state, Shape shape) {
  Fixture fixture(shape);
  const size_t bytes = static_cast<size_t>(fixture.moved_bytes() / 2) *
                       static_cast<size_t>(shape.batch_size);
  const std::vector<uint8_t> from(bytes, 1);
  for (auto _ : state) {
    std::memcpy(fixture.NextBatch().slot, from.data(), bytes);
    benchmark::ClobberMemory();
  }
  fixture.Report(state);
}

#define DATASETD_AUGMENT_BENCHMARK(name, shape) \
  BENCHMARK_CAPTURE(BM_Augment, name, shape);   \
  BENCHMARK_CAPTURE(BM_Memcpy, name, shape)

DATASETD_AUGMENT_BENCHMARK(CifarFloat32Nchw,
                           Cifar(Dtype::kFloat32, Layout::kNchw));
DATASETD_AUGMENT_BENCHMARK(CifarFloat16Nchw,
                           Cifar(Dtype::kFloat16, Layout::kNchw));
DATASETD_AUGMENT_BENCHMARK(CifarFloat16Nhwc,
                           Cifar(Dtype::kFloat16, Layout::kNhwc));
DATASETD_AUGMENT_BENCHMARK(Image224Float32Nchw,
                           Image224(Dtype::kFloat32, Layout::kNchw));
DATASETD_AUGMENT_BENCHMARK(Image224Float16Nhwc,
                           Image224(Dtype::kFloat16, Layout::kNhwc));

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();
