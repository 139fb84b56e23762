#include "tests/testing/augment_plain.h"

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

void AugmentImages(const AugmentProgram& program, const FieldProgram& field,
                   const BatchTask& batch) {
  const int out_size_bytes = DtypeSizeBytes(field.out_dtype);
  const int64_t pixels = int64_t{field.out_height} * field.out_width;
  const int64_t pixel_step = field.layout == Layout::kNhwc ? field.channels : 1;
  const int64_t channel_step = field.layout == Layout::kNhwc ? 1 : pixels;
  uint8_t* to = batch.slot + field.offset_bytes;
  SampleMoves moves;
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.indices[i];
    const uint8_t* from = field.source + sample * field.sample_stride_bytes;
    DrawMoves(field, program.seed, batch.epoch, DrawIndex(batch, i), &moves);
    for (int32_t y = 0; y < field.out_height; ++y) {
      const int32_t row = MapBack(field, moves.axis[0], y);
      for (int32_t x = 0; x < field.out_width; ++x) {
        const int32_t column = MapBack(field, moves.axis[1], x);
        const int32_t fill = NearestFill(row, column);
        const int64_t pixel = int64_t{y} * field.out_width + x;
        for (int c = 0; c < field.channels; ++c) {
          const int64_t element =
              (int64_t{row} * field.in_width + column) * field.channels + c;
          const uint32_t bits = IsFill(fill)
                                    ? FillElementBits(field, FillMove(fill), c)
                                    : ImageElementBits(field, from, element, c);
          StoreBits(to, out_size_bytes, pixel * pixel_step + c * channel_step,
                    bits);
        }
      }
    }
    to += pixels * field.channels * out_size_bytes;
  }
}

void CopyOther(const FieldProgram& field, const BatchTask& batch) {
  const int64_t row_bytes =
      int64_t{field.in_width} * DtypeSizeBytes(field.out_dtype);
  uint8_t* to = batch.slot + field.offset_bytes;
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    const uint8_t* from =
        field.source + batch.indices[i] * field.sample_stride_bytes;
    if (field.in_dtype == field.out_dtype) {
      std::memcpy(to, from, static_cast<size_t>(row_bytes));
    } else {
      for (int64_t k = 0; k < field.in_width; ++k) {
        StoreBits(to, DtypeSizeBytes(field.out_dtype), k,
                  CastElementBits(from, field.in_dtype, field.out_dtype, k));
      }
    }
    to += row_bytes;
  }
}

}  // namespace

void AugmentPlain(const AugmentProgram& program, const BatchTask& batch) {
  if (batch.num_samples <= 0) return;
  for (int i = 0; i < program.num_fields; ++i) {
    const FieldProgram& field = program.fields[i];
    if (field.is_image) {
      AugmentImages(program, field, batch);
    } else {
      CopyOther(field, batch);
    }
  }
  if (program.indices_offset_bytes >= 0) {
    std::memcpy(batch.slot + program.indices_offset_bytes, batch.indices,
                static_cast<size_t>(batch.num_samples) * sizeof(int64_t));
  }
}

}  // namespace datasetd
