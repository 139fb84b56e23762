// Crops of sequences of several lengths: the steps of a sample that a row has.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_CROP_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_CROP_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// The part of a row that its sample fills; the rest is FieldProgram::fill.
struct RowCrop {
  const uint8_t* data;  // of the first element
  int32_t first_step;   // in the sample
  int32_t num_steps;
};

// How much of a row is its sample's: steps of a waveform, and frames of the
// spectrogram that is made of it.
struct RowLength {
  int32_t steps, frames;  // negative: of a row that is no crop, all
};

// Returns the number of frames that `steps` of a waveform make: those of a
// spectrogram of these steps alone. REQUIRES: the field has a frame_hop.
DATASETD_HOST_DEVICE inline int32_t FramesOf(const FieldProgram& field,
                                             int32_t steps) {
  // Below 2^32: padding is at most 2^30 on each side.
  const int64_t room = steps + field.frame_margin;
  if (steps == 0 || room < 0) return 0;
  const auto hop = static_cast<uint32_t>(field.frame_hop);
  return static_cast<int32_t>(static_cast<uint32_t>(room) / hop) + 1;
}

// `num_steps`: that a row has of its sample, if it is a crop.
DATASETD_HOST_DEVICE inline RowLength LengthOf(const FieldProgram& field,
                                               int32_t num_steps) {
  if (field.crop_kind == CropKind::kNone) return {-1, -1};
  return {num_steps, field.frame_hop > 0 ? FramesOf(field, num_steps) : 0};
}

// Returns the first of the `length` steps that a row has of a sample of
// `num_steps`; `draw_index` as of DrawIndex.
DATASETD_HOST_DEVICE inline int32_t FirstCropStep(const FieldProgram& field,
                                                  int32_t num_steps,
                                                  uint64_t seed, uint64_t epoch,
                                                  int64_t draw_index) {
  const int32_t left_out = num_steps - field.crop_length;
  if (left_out <= 0) return 0;
  switch (field.crop_kind) {
    case CropKind::kCenter:
      return left_out / 2;
    case CropKind::kRandom: {
      const Words4 words =
          Draw(seed, 0, field.crop_op_index, static_cast<uint32_t>(epoch),
               static_cast<uint32_t>(draw_index));
      return static_cast<int32_t>(
          UniformInt(words.word[0], static_cast<uint32_t>(left_out) + 1));
    }
    default:
      return 0;
  }
}

// REQUIRES: the field has a crop_kind.
DATASETD_HOST_DEVICE inline RowCrop CropRow(const AugmentProgram& program,
                                            const FieldProgram& field,
                                            const BatchTask& batch,
                                            int32_t row) {
  int32_t num_steps = field.sample_steps;
  int32_t width;
  const int64_t place = batch.indices[row];
  const uint8_t* const sample =
      num_steps > 0
          ? SampleData(program.mixture, field, place)
          : RaggedData(program.mixture, field, place, &num_steps, &width);
  RowCrop crop;
  crop.first_step = FirstCropStep(field, num_steps, program.seed, batch.epoch,
                                  DrawIndex(batch, row));
  crop.num_steps =
      num_steps < field.crop_length ? num_steps : field.crop_length;
  crop.data = sample + int64_t{crop.first_step} * field.step_elements *
                           DtypeSizeBytes(field.in_dtype);
  return crop;
}

// Returns what a field that has_length has of a row with so many steps of its
// sample.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE int32_t
DeliveredLength(const FieldProgram& field, int32_t num_steps) {
  return field.frame_hop > 0 ? FramesOf(field, num_steps) : num_steps;
}

// Returns the output bits of element `index` of a row.
DATASETD_HOST_DEVICE inline uint64_t CropElementBits(const FieldProgram& field,
                                                     const RowCrop& crop,
                                                     int32_t index) {
  if (field.has_length) {
    return static_cast<uint64_t>(DeliveredLength(field, crop.num_steps));
  }
  if (index >= crop.num_steps * field.step_elements) return field.fill;
  return CastElementBits(crop.data, field.in_dtype, field.out_dtype, index);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_CROP_H_
