// Per-thread code of the augment kernel's blocks, as host and device functions,
// so that a host loop over blocks and threads runs the kernel's code.
//
// A block runs LocateBlock, LoadBlock, DrawBlock, MapBlock, WriteBlock; all
// threads finish one phase before any begins the next.

#ifndef DATASETD_CUDA_KERNELS_MOVES_AUGMENT_BLOCK_H_
#define DATASETD_CUDA_KERNELS_MOVES_AUGMENT_BLOCK_H_

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/moves/block_state.h"
#include "cuda/kernels/moves/pixel_runs.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/crop.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

DATASETD_HOST_DEVICE inline void LocateBlock(const AugmentPlan& plan,
                                             uint32_t block, int thread,
                                             BlockState& state) {
  if (thread != 0) return;
  // Find the last part that begins at or before the block; an empty part begins
  // where the next one does.
  int low = 0;
  int high = plan.num_batches * plan.num_fields;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (plan.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  BlockWork& work = state.work;
  work.batch_index = low / plan.num_fields;
  work.plan_index = low % plan.num_fields;
  const FieldPlan& field = plan.fields[work.plan_index];
  const int64_t first =
      int64_t{block - plan.first_block[low]} * field.positions_per_block;
  const BatchTask& batch = plan.batches[work.batch_index];
  const int64_t end = int64_t{RowsOfField(field.is_in_parts, batch)} *
                      field.positions_per_sample;
  const int64_t left = end - first;
  work.num_positions = left < field.positions_per_block
                           ? static_cast<int32_t>(left)
                           : field.positions_per_block;
  work.first_sample = static_cast<int32_t>(first / field.positions_per_sample);
  work.first_position = static_cast<int32_t>(
      first - int64_t{work.first_sample} * field.positions_per_sample);
  work.first_sample += FirstRow(field.is_in_parts, batch);
  const uint32_t last = static_cast<uint32_t>(work.first_position) +
                        static_cast<uint32_t>(work.num_positions) - 1;
  work.num_samples =
      static_cast<int32_t>(field.sample_divider.Divide(last)) + 1;
  work.first_row = static_cast<int32_t>(
      field.row_divider.Divide(static_cast<uint32_t>(work.first_position)));
  work.num_rows =
      static_cast<int32_t>(field.row_divider.Divide(last)) - work.first_row + 1;
  work.is_image = field.field_index != kIndicesField &&
                  plan.program->fields[field.field_index].is_image;
}

// Copies word `i` of an object that is aligned to words.
template <typename Word, typename T>
DATASETD_HOST_DEVICE inline void CopyWord(const T* from, T* to, int i) {
  static_assert(sizeof(T) % sizeof(Word) == 0);
#if defined(__CUDA_ARCH__)
  reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
#else
  constexpr int kBytes = sizeof(Word);
  memcpy(reinterpret_cast<uint8_t*>(to) + kBytes * i,
         reinterpret_cast<const uint8_t*>(from) + kBytes * i, kBytes);
#endif
}

DATASETD_HOST_DEVICE inline void LoadBlock(const AugmentPlan& plan, int thread,
                                           BlockState& state) {
  if (!state.work.is_image) return;
  const BlockWork& work = state.work;
  const MoveProgram& field =
      plan.program->fields[plan.fields[work.plan_index].field_index];
  static_assert(alignof(MoveProgram) == 8);
  constexpr int kWords = sizeof(MoveProgram) / 8;
  for (int i = thread; i < kWords; i += kBlockThreads) {
    CopyWord<uint64_t>(&field, &state.field, i);
  }
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  // Runs of copied bytes need no table.
  if (field.in_dtype == Dtype::kUint8 &&
      !(field_plan.has_runs && IsBitCopy(field))) {
    const auto& table = plan.program->byte_bits[field_plan.field_index];
    for (int i = thread; i < field.channels * 64; i += kBlockThreads) {
      CopyWord<OutputVector>(&table, &state.map.table, i);
    }
  }
  if (thread < work.num_samples) {
    const BatchTask& batch = plan.batches[work.batch_index];
    const int32_t row = work.first_sample + thread;
    const MixtureTable& mixture = plan.program->mixture;
    state.draw_indices[thread] = DrawIndex(batch, row);
    state.sources[thread] =
        IsOwnRow(mixture, batch, row)
            ? SampleData(mixture, plan.program->fields[field_plan.field_index],
                         batch.indices[row])
            : nullptr;
  }
}

DATASETD_HOST_DEVICE inline void DrawBlock(const AugmentPlan& plan, int thread,
                                           BlockState& state) {
  if (!state.work.is_image) return;
  const MoveProgram& field = state.field;
  const int draws_per_sample = 2 * field.num_moves;
  for (int i = thread; i < state.work.num_samples * draws_per_sample;
       i += kBlockThreads) {
    const int sample = i / draws_per_sample;
    const int draw = i % draws_per_sample;
    state.map.moves[sample].axis[draw % 2][draw / 2] = DrawAxisMove(
        field.moves[draw / 2], static_cast<Axis>(draw % 2), plan.program->seed,
        plan.batches[state.work.batch_index].epoch, state.draw_indices[sample]);
  }
  for (int i = thread; i < field.num_moves * field.channels;
       i += kBlockThreads) {
    const int move = i / field.channels;
    const int channel = i % field.channels;
    state.fill_bits[move][channel] = FillElementBits(field, move, channel);
  }
}

// Computes the columns entry of output column `x`.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE int32_t
MapColumn(const BlockState& state, int sample, int32_t x) {
  const int32_t entry =
      MapBack(state.field, state.map.moves[sample].axis[1], x);
  return IsFill(entry) ? entry : entry * state.field.channels;
}

// REQUIRES: the plan has runs. `folds`: they are padded with pixels, and may
// begin and end outside the output.
DATASETD_HOST_DEVICE inline ColumnSpan FindRun(const MoveProgram& field,
                                               const AxisMove* drawn,
                                               bool folds) {
  ColumnSpan run = {0, 1, 0, field.out_width};
  DATASETD_NO_UNROLL
  for (int i = field.num_moves - 1; i >= 0; --i) {
    const AxisMove& move = drawn[i];
    run.origin =
        move.is_mirrored ? move.origin - run.origin : move.origin + run.origin;
    if (move.is_mirrored) run.step = -run.step;
    if (!move.is_padded) continue;
    // Where 0 <= origin + step * x < size.
    const int32_t begin =
        run.step > 0 ? -run.origin : run.origin - move.size + 1;
    run.begin = folds || begin > run.begin ? begin : run.begin;
    run.end =
        folds || begin + move.size < run.end ? begin + move.size : run.end;
  }
  // Padding only: any input column may be read in its place.
  if (run.begin >= run.end) return {0, 0, -1, 0};
  return run;
}

DATASETD_HOST_DEVICE inline void MapBlock(const AugmentPlan& plan, int thread,
                                          BlockState& state) {
  if (!state.work.is_image) return;
  const BlockWork& work = state.work;
  const MoveProgram& field = state.field;
  for (int i = thread; i < work.num_rows; i += kBlockThreads) {
    const int32_t row = work.first_row + i;
    const int32_t sample = row / field.out_height;
    const int32_t entry = MapBack(field, state.map.moves[sample].axis[0],
                                  row - sample * field.out_height);
    state.rows[i].entry =
        IsFill(entry) ? entry : entry * field.in_width * field.channels;
    state.rows[i].sample = sample;
  }
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  if (field_plan.has_runs && thread < work.num_samples) {
    state.runs[thread] =
        FindRun(field, state.map.moves[thread].axis[1],
                PadsWithPixels(field, field_plan.padding_move));
  }
  if (!field_plan.has_column_map) return;
  for (int i = thread; i < work.num_samples * field.out_width;
       i += kBlockThreads) {
    const int32_t sample = i / field.out_width;
    state.map.columns[i] =
        MapColumn(state, sample, i - sample * field.out_width);
  }
}

// Iterates over output pixels and yields the source of each.
class PixelCursor {
 public:
  // `row` is counted from the block's first row.
  DATASETD_HOST_DEVICE PixelCursor(const BlockState& state, bool has_column_map,
                                   int32_t row, int32_t x)
      : state_(state),
        has_column_map_(has_column_map),
        row_(row),
        x_(x),
        block_row_(state.rows[row]) {}

  DATASETD_HOST_DEVICE int sample() const { return block_row_.sample; }

  // Element offset of the pixel's first channel in the sample, or fill.
  DATASETD_HOST_DEVICE int32_t Offset() const {
    const int32_t column =
        has_column_map_
            ? state_.map
                  .columns[block_row_.sample * state_.field.out_width + x_]
            : MapColumn(state_, block_row_.sample, x_);
    const int32_t fill = NearestFill(block_row_.entry, column);
    return IsFill(fill) ? fill : block_row_.entry + column;
  }

  // REQUIRES: there is a next pixel in the block.
  DATASETD_HOST_DEVICE void Advance() {
    if (++x_ == state_.field.out_width) {
      x_ = 0;
      block_row_ = state_.rows[++row_];
    }
  }

 private:
  const BlockState& state_;
  const bool has_column_map_;
  int32_t row_;
  int32_t x_;
  BlockRow block_row_;
};

// Returns the output bits of channel `channel` of the pixel at `offset`.
// kSizeBytes: as in WritePlanes.
template <int kSizeBytes>
DATASETD_HOST_DEVICE inline uint32_t PixelBits(const BlockState& state,
                                               const uint8_t* source,
                                               int32_t offset, int channel) {
  if (IsFill(offset)) return state.fill_bits[FillMove(offset)][channel];
  if (kSizeBytes > 0 || state.field.in_dtype == Dtype::kUint8) {
    return state.map.table[channel][LoadAs<uint8_t>(source, offset + channel)];
  }
  return ImageElementBits(state.field, source, offset + channel, channel);
}

// Returns the positions that a thread writes at once if it looks each one up:
// half a vector, at most 4. A whole one saves 6 % of the instructions, but asks
// for half as many sectors more and adds 19 KB of code.
constexpr int LookedUpPositions(int size_bytes) {
  return size_bytes == 0 ? 1 : size_bytes == 4 ? 2 : 4;
}

// kSizeBytes is the size of a vector's elements, made of bytes; 0 for single
// positions.
template <int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WritePlanes(const AugmentPlan& plan,
                                             int thread,
                                             const BlockState& state,
                                             const Sink& sink) {
  constexpr int kVector = LookedUpPositions(kSizeBytes);
  const BlockWork& work = state.work;
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  const MoveProgram& field = state.field;
  uint8_t* slot = plan.batches[work.batch_index].slot + field.offset_bytes;
  const int size_bytes =
      kSizeBytes == 0 ? DtypeSizeBytes(field.out_dtype) : kSizeBytes;
  const int64_t plane = field_plan.positions_per_sample;
  for (int32_t i = thread * kVector; i < work.num_positions;
       i += kBlockThreads * kVector) {
    const int32_t position = work.first_position + i;
    const int32_t row = static_cast<int32_t>(
        field_plan.row_divider.Divide(static_cast<uint32_t>(position)));
    PixelCursor cursor(state, field_plan.has_column_map, row - work.first_row,
                       position - row * field.out_width);
    const int sample = cursor.sample();
    const uint8_t* source = state.sources[sample];
    if (source == nullptr) continue;
    int32_t offsets[kVector];
    DATASETD_UNROLL
    for (int k = 0; k < kVector; ++k) {
      offsets[k] = cursor.Offset();
      if (k + 1 < kVector) cursor.Advance();
    }
    // Output index of channel 0.
    int64_t to =
        (int64_t{work.first_sample} + sample) * field.channels * plane +
        (position - sample * plane);
    for (int c = 0; c < field.channels; ++c, to += plane) {
      if constexpr (kSizeBytes == 0) {
        sink.Store(slot, size_bytes, to,
                   PixelBits<kSizeBytes>(state, source, offsets[0], c));
      } else {
        uint32_t words[kVector * kSizeBytes / 4] = {};
        DATASETD_UNROLL
        for (int k = 0; k < kVector; ++k) {
          PackElement<kSizeBytes>(
              words, k, PixelBits<kSizeBytes>(state, source, offsets[k], c));
        }
        sink.StoreVector(slot + to * kSizeBytes, words);
      }
    }
  }
}

template <int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WritePixels(const AugmentPlan& plan,
                                             int thread,
                                             const BlockState& state,
                                             const Sink& sink) {
  constexpr int kVector = LookedUpPositions(kSizeBytes);
  const BlockWork& work = state.work;
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  const MoveProgram& field = state.field;
  uint8_t* slot = plan.batches[work.batch_index].slot + field.offset_bytes;
  const int size_bytes =
      kSizeBytes == 0 ? DtypeSizeBytes(field.out_dtype) : kSizeBytes;
  const int32_t row_elements = field.out_width * field.channels;
  const int64_t batch_first =
      int64_t{work.first_sample} * field_plan.positions_per_sample;
  for (int32_t i = thread * kVector; i < work.num_positions;
       i += kBlockThreads * kVector) {
    const int32_t position = work.first_position + i;
    const int32_t row = static_cast<int32_t>(
        field_plan.row_divider.Divide(static_cast<uint32_t>(position)));
    const int32_t in_row = position - row * row_elements;
    const int32_t x = in_row / field.channels;
    int channel = in_row - x * field.channels;
    PixelCursor cursor(state, field_plan.has_column_map, row - work.first_row,
                       x);
    const uint8_t* source = state.sources[cursor.sample()];
    if (source == nullptr) continue;
    int32_t offset = cursor.Offset();
    if constexpr (kSizeBytes == 0) {
      sink.Store(slot, size_bytes, batch_first + position,
                 PixelBits<kSizeBytes>(state, source, offset, channel));
    } else {
      uint32_t words[kVector * kSizeBytes / 4] = {};
      DATASETD_UNROLL
      for (int k = 0; k < kVector; ++k) {
        PackElement<kSizeBytes>(
            words, k, PixelBits<kSizeBytes>(state, source, offset, channel));
        if (k + 1 < kVector && ++channel == field.channels) {
          channel = 0;
          cursor.Advance();
          offset = cursor.Offset();
        }
      }
      sink.StoreVector(slot + (batch_first + position) * kSizeBytes, words);
    }
  }
}

template <int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WriteImage(const AugmentPlan& plan, int thread,
                                            BlockState& state,
                                            const Sink& sink) {
  if constexpr (kSizeBytes > 0) {
    if (plan.fields[state.work.plan_index].has_runs) {
      WriteRunImage<kSizeBytes>(plan, thread, state, sink);
      return;
    }
  }
  if (state.field.layout == Layout::kNhwc) {
    WritePixels<kSizeBytes>(plan, thread, state, sink);
  } else {
    WritePlanes<kSizeBytes>(plan, thread, state, sink);
  }
}

// Writes a non-image field, or the indices.
template <typename Sink>
DATASETD_HOST_DEVICE inline void WriteElements(const AugmentPlan& plan,
                                               int thread,
                                               const BlockState& state,
                                               const Sink& sink) {
  const BlockWork& work = state.work;
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  const BatchTask& batch = plan.batches[work.batch_index];
  const MixtureTable& mixture = plan.program->mixture;
  const int64_t batch_first =
      int64_t{work.first_sample} * field_plan.positions_per_sample;
  RowCrop crop;
  int32_t cropped_row = -1;  // of which `crop` is
  for (int32_t i = thread; i < work.num_positions; i += kBlockThreads) {
    const int32_t position = work.first_position + i;
    const int32_t sample = static_cast<int32_t>(
        field_plan.sample_divider.Divide(static_cast<uint32_t>(position)));
    if (field_plan.field_index == kIndicesField) {
      sink.Store(
          batch.slot + plan.program->indices_offset_bytes, 8,
          batch_first + position,
          static_cast<uint64_t>(PublishedIndex(
              mixture, SampleIndices(batch)[work.first_sample + sample])));
      continue;
    }
    if (!IsOwnRow(mixture, batch, work.first_sample + sample)) continue;
    const FieldProgram& field = plan.program->fields[field_plan.field_index];
    const int32_t row = work.first_sample + sample;
    const int32_t element = position - sample * field_plan.positions_per_sample;
    uint64_t bits;
    if (field.crop_kind != CropKind::kNone) {
      if (row != cropped_row) crop = CropRow(*plan.program, field, batch, row);
      cropped_row = row;
      bits = CropElementBits(field, crop, element);
    } else if (field.entry_kind != EntryKind::kNone) {
      bits = EntryElementBits(
          field, batch.indices + int64_t{row} * plan.program->row_entries,
          element);
    } else {
      bits = CastElementBits(SampleData(mixture, field, batch.indices[row]),
                             field.in_dtype, field.out_dtype, element);
    }
    sink.Store(batch.slot + field.offset_bytes, DtypeSizeBytes(field.out_dtype),
               batch_first + position, bits);
  }
}

template <typename Sink>
DATASETD_HOST_DEVICE inline void WriteBlock(const AugmentPlan& plan, int thread,
                                            BlockState& state,
                                            const Sink& sink) {
  if (!state.work.is_image) {
    WriteElements(plan, thread, state, sink);
  } else {
    switch (plan.fields[state.work.plan_index].vector_positions) {
      case 4:
        WriteImage<4>(plan, thread, state, sink);
        break;
      case 8:
        WriteImage<2>(plan, thread, state, sink);
        break;
      case 16:
        WriteImage<1>(plan, thread, state, sink);
        break;
      default:
        WriteImage<0>(plan, thread, state, sink);
        break;
    }
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MOVES_AUGMENT_BLOCK_H_
