#include "cuda/kernels/program/augment_plan.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

inline constexpr int kVectorBytes = 16;
// Small enough that a CIFAR batch fills a GPU, large enough to amortise a
// block's preparation. Blocks have more once there are enough of them: an A100
// runs 432 at a time.
inline constexpr int64_t kBlockPixels = 2048;
inline constexpr int64_t kMaxBlockPixels = 8192;
inline constexpr int64_t kNumFillingBlocks = 432;

// True if the pixels of an output row are, but for one padding, consecutive in
// an input row, and single bytes are copied as they are.
bool HasRuns(const FieldProgram& field, int vector, int* padding_move) {
  *padding_move = -1;
  if (vector == 1 || field.out_width % vector != 0) return false;
  if (field.channels != 1 && field.channels != 3) return false;
  if (DtypeSizeBytes(field.out_dtype) == 1 && !IsBitCopy(field)) return false;
  for (int i = 0; i < field.num_moves; ++i) {
    if (field.moves[i].kind != MoveKind::kPad) continue;
    if (*padding_move >= 0) return false;
    *padding_move = i;
  }
  return true;
}

// `num_samples` are those of the launch. `is_for_all`: all rows are made.
FieldPlan PlanImage(const FieldProgram& field, int field_index,
                    int64_t num_samples, bool is_for_all) {
  FieldPlan plan = {};
  plan.field_index = field_index;
  const int64_t row_positions =
      int64_t{field.out_width} *
      (field.layout == Layout::kNhwc ? field.channels : 1);
  const int64_t sample_positions = row_positions * field.out_height;
  plan.positions_per_sample = static_cast<int32_t>(sample_positions);
  plan.sample_divider = MakeDivider(static_cast<uint32_t>(sample_positions));
  plan.row_divider = MakeDivider(static_cast<uint32_t>(row_positions));

  // A vector must lie in one sample, and be aligned in each of its planes.
  plan.vector_positions = 1;
  const int vector = kVectorBytes / DtypeSizeBytes(field.out_dtype);
  if (field.in_dtype == Dtype::kUint8 && sample_positions % vector == 0 &&
      field.offset_bytes % kVectorBytes == 0) {
    plan.vector_positions = vector;
  }
  // The threads of a warp exchange runs, and cannot leave out a row's.
  plan.has_runs =
      is_for_all && HasRuns(field, plan.vector_positions, &plan.padding_move);

  const int64_t pixels = std::clamp(
      num_samples * field.out_height * field.out_width / kNumFillingBlocks,
      std::max(kBlockPixels, int64_t{kBlockThreads} * plan.vector_positions),
      kMaxBlockPixels);
  int64_t positions =
      field.layout == Layout::kNhwc ? pixels * field.channels : pixels;
  // A block touches at most (positions - 1) / n + 2 stretches of n positions.
  positions = std::min(positions, (kMaxBlockRows - 2) * row_positions);
  positions = std::min(positions, (kMaxBlockSamples - 2) * sample_positions);
  const int unit = plan.has_runs && field.layout == Layout::kNhwc
                       ? vector * field.channels
                       : plan.vector_positions;
  // All threads as often, if that leaves any.
  const int64_t turn = int64_t{kBlockThreads} * unit;
  positions -= positions % (positions < turn ? unit : turn);
  plan.positions_per_block = static_cast<int32_t>(positions);

  const int64_t samples = (positions - 1) / sample_positions + 2;
  const int64_t columns = samples * field.out_width;
  plan.has_column_map =
      !plan.has_runs && columns <= kMaxBlockColumns && columns * 2 <= positions;
  return plan;
}

FieldPlan PlanElements(int32_t elements_per_sample, int field_index) {
  FieldPlan plan = {};
  plan.field_index = field_index;
  plan.vector_positions = 1;
  plan.positions_per_sample = elements_per_sample;
  plan.positions_per_block = static_cast<int32_t>(kBlockPixels);
  plan.sample_divider = MakeDivider(static_cast<uint32_t>(elements_per_sample));
  plan.row_divider = plan.sample_divider;
  return plan;
}

}  // namespace

Divider MakeDivider(uint32_t divisor) {
  uint32_t log2 = 0;
  while ((uint64_t{1} << log2) < divisor) ++log2;
  const uint64_t power = uint64_t{1} << (31 + log2);
  return {static_cast<uint32_t>((power + divisor - 1) / divisor), 31 + log2};
}

std::unique_ptr<DeviceProgram> MakeDeviceProgram(
    const AugmentProgram& program) {
  auto result = std::make_unique<DeviceProgram>();
  static_cast<AugmentProgram&>(*result) = program;
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    if (!field.is_image || field.num_steps > 0 ||
        field.in_dtype != Dtype::kUint8) {
      continue;
    }
    for (int channel = 0; channel < field.channels; ++channel) {
      for (int byte = 0; byte < 256; ++byte) {
        result->byte_bits[f][channel][byte] =
            RoundedBits(ApplyValueOps(field, channel, static_cast<float>(byte)),
                        field.out_dtype);
      }
    }
  }
  return result;
}

bool MakeAugmentPlan(const DeviceProgram* device_program,
                     const AugmentProgram& host_program,
                     const BatchTask* batches, int num_batches,
                     AugmentPlan* plan) {
  if (num_batches < 0 || num_batches > kMaxBatchesPerLaunch) return false;
  *plan = {};
  plan->program = device_program;
  plan->num_batches = num_batches;
  int64_t num_samples = 0;
  for (int b = 0; b < num_batches; ++b) {
    num_samples += RowsOfField(/*is_in_parts=*/false, batches[b]);
  }
  // So many need blocks of the largest size, whatever they are.
  num_samples = std::min(num_samples, kNumFillingBlocks * kMaxBlockPixels);
  const bool is_for_all = host_program.mixture.own_parts == 0;
  for (int i = 0; i < host_program.num_fields; ++i) {
    const FieldProgram& field = host_program.fields[i];
    // Chains have their own kernel, which also writes mixed labels.
    if (field.num_steps > 0 || field.num_classes > 0) continue;
    plan->fields[plan->num_fields++] =
        field.is_image ? PlanImage(field, i, num_samples, is_for_all)
                       : PlanElements(field.in_width, i);
    plan->fields[plan->num_fields - 1].is_in_parts =
        field.crop_kind != CropKind::kNone;
  }
  if (host_program.indices_offset_bytes >= 0) {
    plan->fields[plan->num_fields++] = PlanElements(1, kIndicesField);
  }
  int64_t block = 0;
  uint32_t* first_block = plan->first_block;
  for (int b = 0; b < num_batches; ++b) {
    plan->batches[b] = batches[b];
    for (int f = 0; f < plan->num_fields; ++f) {
      const FieldPlan& field = plan->fields[f];
      const int64_t positions =
          int64_t{RowsOfField(field.is_in_parts, batches[b])} *
          field.positions_per_sample;
      *first_block++ = static_cast<uint32_t>(block);
      block += (positions + field.positions_per_block - 1) /
               field.positions_per_block;
      if (block > INT32_MAX) return false;
    }
  }
  *first_block = static_cast<uint32_t>(block);
  return true;
}

}  // namespace datasetd
