// Division of one launch of the augment kernel into blocks.
//
// A field of a batch is a sequence of positions: pixels for images in NCHW,
// elements for everything else. A block handles a range of them, which may
// begin and end inside a sample or span several. A thread handles vectors of 16
// output bytes if layout and alignment allow, else single positions.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_PLAN_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_PLAN_H_

#include <cstdint>
#include <memory>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr int kBlockThreads = 256;
// Upper limits of what one block touches; the plan respects them.
inline constexpr int kMaxBlockSamples = 16;
inline constexpr int kMaxBlockRows = 256;
inline constexpr int kMaxBlockColumns = 2048;

// Divides n < 2^31 by a multiplication.
struct Divider {
  uint32_t multiplier;
  uint32_t shift;

  DATASETD_HOST_DEVICE uint32_t Divide(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * multiplier) >> shift);
  }
};

// REQUIRES: divisor in 1 .. 2^31 - 1.
Divider MakeDivider(uint32_t divisor);

// A program as the kernels read it.
struct DeviceProgram : AugmentProgram {
  // The output bits of each byte value, for uint8 images without steps.
  alignas(16) uint32_t byte_bits[kMaxFields][kMaxChannels][256];
};

std::unique_ptr<DeviceProgram> MakeDeviceProgram(const AugmentProgram& program);

// Returns the first row of a field, or of the indices, that the launch writes.
DATASETD_HOST_DEVICE inline int32_t FirstRow(bool is_in_parts,
                                             const BatchTask& batch) {
  return is_in_parts ? batch.first_row : 0;
}

// Returns how many rows those are.
DATASETD_HOST_DEVICE inline int32_t RowsOfField(bool is_in_parts,
                                                const BatchTask& batch) {
  if (is_in_parts) return NumRows(batch);
  return IsLastPart(batch) && batch.num_samples > 0 ? batch.num_samples : 0;
}

// Part of the launch that writes one field, or the indices, of all batches.
struct FieldPlan {
  int32_t field_index;  // kIndicesField: the sample indices
  // Positions that a thread writes at once; 1 if 16 bytes do not fit.
  int32_t vector_positions;
  int32_t positions_per_sample;  // below 2^30
  int32_t positions_per_block;   // a multiple of vector_positions
  // True if a thread writes vectors of all channels of as many pixels, which
  // are consecutive in an output row and, but for padding by one move, in an
  // input row. Bytes are copied.
  bool has_runs;
  // The move that pads an image with runs; negative: none.
  int32_t padding_move;
  Divider sample_divider;  // by positions_per_sample
  Divider row_divider;     // by the positions of an output row
  // True if a block maps its columns once, in shared memory; else per pixel.
  bool has_column_map;
  // True if each part of a batch writes its own rows; else the last one writes
  // all. Of ragged samples, which may be staged for a part alone.
  bool is_in_parts;
};

inline constexpr int32_t kIndicesField = -1;
inline constexpr int kMaxFieldPlans = kMaxFields + 1;

// True if `padding_move`, of FieldPlan, pads with other pixels of the row.
DATASETD_HOST_DEVICE inline bool PadsWithPixels(const MoveProgram& field,
                                                int padding_move) {
  return padding_move >= 0 &&
         field.moves[padding_move].padding_mode != PaddingMode::kConstant;
}

// The kernel's parameter, passed by value.
struct AugmentPlan {
  const DeviceProgram* program;  // readable by the kernel
  int32_t num_batches;
  int32_t num_fields;  // of `fields`
  FieldPlan fields[kMaxFieldPlans];
  BatchTask batches[kMaxBatchesPerLaunch];
  // Field f of batch b has the blocks from first_block[b * num_fields + f] up
  // to the next entry.
  uint32_t first_block[kMaxBatchesPerLaunch * kMaxFieldPlans + 1];

  uint32_t num_blocks() const { return first_block[num_batches * num_fields]; }
};

// Kernel parameters are at most 4 KiB.
static_assert(sizeof(AugmentPlan) <= 4096);

// Fills `plan`. Returns false if the launch needs 2^31 blocks or more, or
// num_batches is not in 0..kMaxBatchesPerLaunch.
bool MakeAugmentPlan(const DeviceProgram* device_program,
                     const AugmentProgram& host_program,
                     const BatchTask* batches, int num_batches,
                     AugmentPlan* plan);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_PLAN_H_
