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
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/bytes.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// Range of positions of a block.
struct BlockWork {
  int32_t batch_index;
  int32_t plan_index;      // in AugmentPlan::fields
  int32_t first_sample;    // in the batch
  int32_t first_position;  // in that sample
  int32_t num_positions;
  int32_t num_samples;  // that the range touches
  int32_t first_row;    // of images: the row of first_position
  int32_t num_rows;     // counted across samples
};

// An output row of a block.
struct BlockRow {
  int32_t entry;   // element offset of the input row, or fill
  int32_t sample;  // in the block
};

// Output columns [begin, end) of a sample come from input column `origin` +
// `step` * x; all others are padding.
struct ColumnRun {
  int32_t origin, step;
  int32_t begin, end;
};

// How a block finds the pixels of its samples.
struct BlockMap {
  SampleMoves moves[kMaxBlockSamples];
  // Element offset in an input row, or fill: [sample][out_width].
  int32_t columns[kMaxBlockColumns];
};

// 16 bytes of output.
struct alignas(16) OutputVector {
  uint32_t words[4];
};

// Vectors of a thread that writes an NHWC image with runs.
inline constexpr int kExchangedVectors = 3;

// The shared memory of a block.
struct BlockState {
  BlockWork work;
  MoveProgram field;
  int64_t draw_indices[kMaxBlockSamples];
  const uint8_t* sources[kMaxBlockSamples];
  ColumnRun runs[kMaxBlockSamples];  // if the plan has runs
  BlockRow rows[kMaxBlockRows];
  union {
    BlockMap map;
    // With runs, while the block writes.
    OutputVector exchange[kBlockThreads * kExchangedVectors];
  };
  uint32_t fill_bits[kMaxMoves][kMaxChannels];
  // For uint8 images: output bits of each byte value.
  alignas(8) uint32_t table[kMaxChannels][256];
};

// Stores elements, and vectors of 16 aligned bytes.
struct MemorySink {
  OutputVector* exchange = nullptr;  // for StoreConsecutive on a GPU

  DATASETD_HOST_DEVICE void Store(uint8_t* to, int size_bytes, int64_t index,
                                  uint64_t bits) const {
    StoreBits(to, size_bytes, index, bits);
  }
  DATASETD_HOST_DEVICE void StoreVector(uint8_t* to,
                                        const uint32_t (&words)[4]) const {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<uint4*>(to) =
        make_uint4(words[0], words[1], words[2], words[3]);
#else
    memcpy(to, words, sizeof(words));
#endif
  }
  // Stores vectors that follow those of the thread before, of which the first
  // `num_lanes` threads of the warp have some. All threads of the warp call it
  // and exchange their vectors, so that they store neighbours at a time.
  DATASETD_HOST_DEVICE void StoreConsecutive(
      uint8_t* to, const uint32_t (&words)[kExchangedVectors][4], int lane,
      int num_lanes) const {
#if defined(__CUDA_ARCH__)
    auto* const vectors = reinterpret_cast<uint4*>(
        exchange + (static_cast<int>(threadIdx.x) - lane) * kExchangedVectors);
    auto* const first = reinterpret_cast<uint4*>(to) - lane * kExchangedVectors;
    if (lane < num_lanes) {
      DATASETD_UNROLL
      for (int v = 0; v < kExchangedVectors; ++v) {
        vectors[lane * kExchangedVectors + v] =
            make_uint4(words[v][0], words[v][1], words[v][2], words[v][3]);
      }
    }
    __syncwarp();
    if (lane < num_lanes) {
      DATASETD_UNROLL
      for (int v = 0; v < kExchangedVectors; ++v) {
        first[v * num_lanes + lane] = vectors[v * num_lanes + lane];
      }
    }
    __syncwarp();
#else
    if (lane >= num_lanes) return;
    for (int v = 0; v < kExchangedVectors; ++v) {
      StoreVector(to + 16 * v, words[v]);
    }
#endif
  }
};

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
  const int64_t end = int64_t{plan.batches[work.batch_index].num_samples} *
                      field.positions_per_sample;
  const int64_t left = end - first;
  work.num_positions = left < field.positions_per_block
                           ? static_cast<int32_t>(left)
                           : field.positions_per_block;
  work.first_sample = static_cast<int32_t>(first / field.positions_per_sample);
  work.first_position = static_cast<int32_t>(
      first - int64_t{work.first_sample} * field.positions_per_sample);
  const uint32_t last = static_cast<uint32_t>(work.first_position) +
                        static_cast<uint32_t>(work.num_positions) - 1;
  work.num_samples =
      static_cast<int32_t>(field.sample_divider.Divide(last)) + 1;
  work.first_row = static_cast<int32_t>(
      field.row_divider.Divide(static_cast<uint32_t>(work.first_position)));
  work.num_rows =
      static_cast<int32_t>(field.row_divider.Divide(last)) - work.first_row + 1;
}

// True for blocks that go through LoadBlock to MapBlock.
DATASETD_HOST_DEVICE inline bool IsImageBlock(const AugmentPlan& plan,
                                              const BlockState& state) {
  const int32_t field_index = plan.fields[state.work.plan_index].field_index;
  return field_index != kIndicesField &&
         plan.program->fields[field_index].is_image;
}

// Copies word `i`, of 8 bytes, of an object.
template <typename T>
DATASETD_HOST_DEVICE inline void CopyWord(const T* from, T* to, int i) {
#if defined(__CUDA_ARCH__)
  reinterpret_cast<uint64_t*>(to)[i] =
      reinterpret_cast<const uint64_t*>(from)[i];
#else
  memcpy(reinterpret_cast<uint8_t*>(to) + 8 * i,
         reinterpret_cast<const uint8_t*>(from) + 8 * i, 8);
#endif
}

DATASETD_HOST_DEVICE inline void LoadBlock(const AugmentPlan& plan, int thread,
                                           BlockState& state) {
  if (!IsImageBlock(plan, state)) return;
  const BlockWork& work = state.work;
  const MoveProgram& field =
      plan.program->fields[plan.fields[work.plan_index].field_index];
  static_assert(sizeof(MoveProgram) % 8 == 0 && alignof(MoveProgram) == 8);
  constexpr int kWords = sizeof(MoveProgram) / 8;
  for (int i = thread; i < kWords; i += kBlockThreads) {
    CopyWord(&field, &state.field, i);
  }
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  // Runs of copied bytes need no table.
  if (field.in_dtype == Dtype::kUint8 &&
      !(field_plan.has_runs && IsBitCopy(field))) {
    const auto& table = plan.program->byte_bits[field_plan.field_index];
    for (int i = thread; i < field.channels * 128; i += kBlockThreads) {
      CopyWord(&table, &state.table, i);
    }
  }
  if (thread < work.num_samples) {
    const BatchTask& batch = plan.batches[work.batch_index];
    const int64_t sample = batch.indices[work.first_sample + thread];
    state.draw_indices[thread] = DrawIndex(batch, work.first_sample + thread);
    state.sources[thread] = field.source + sample * field.sample_stride_bytes;
  }
}

DATASETD_HOST_DEVICE inline void DrawBlock(const AugmentPlan& plan, int thread,
                                           BlockState& state) {
  if (!IsImageBlock(plan, state)) return;
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

// REQUIRES: the plan has runs.
DATASETD_HOST_DEVICE inline ColumnRun FindRun(const MoveProgram& field,
                                              const AxisMove* drawn) {
  ColumnRun run = {0, 1, 0, field.out_width};
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
    run.begin = begin > run.begin ? begin : run.begin;
    run.end = begin + move.size < run.end ? begin + move.size : run.end;
  }
  // Padding only: any input column may be read in its place.
  if (run.begin >= run.end) return {0, 0, -1, 0};
  return run;
}

DATASETD_HOST_DEVICE inline void MapBlock(const AugmentPlan& plan, int thread,
                                          BlockState& state) {
  if (!IsImageBlock(plan, state)) return;
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
    state.runs[thread] = FindRun(field, state.map.moves[thread].axis[1]);
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
template <bool kFromBytes>
DATASETD_HOST_DEVICE inline uint32_t PixelBits(const BlockState& state,
                                               const uint8_t* source,
                                               int32_t offset, int channel) {
  if (IsFill(offset)) return state.fill_bits[FillMove(offset)][channel];
  if (kFromBytes) {
    return state.table[channel][LoadAs<uint8_t>(source, offset + channel)];
  }
  return ImageElementBits(state.field, source, offset + channel, channel);
}

// Inserts element `index`, of kSizeBytes, into a vector.
template <int kSizeBytes>
DATASETD_HOST_DEVICE inline void PackElement(uint32_t (&words)[4], int index,
                                             uint32_t bits) {
  constexpr int kPerWord = 4 / kSizeBytes;
  words[index / kPerWord] |= bits << (8 * kSizeBytes * (index % kPerWord));
}

// Returns the positions per vector for elements of `size_bytes`; 0: no vector.
constexpr int VectorPositions(int size_bytes) {
  return size_bytes == 0 ? 1 : 16 / size_bytes;
}

// kSizeBytes is the size of a vector's elements; 0 for single positions.
template <bool kFromBytes, int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WritePlanes(const AugmentPlan& plan,
                                             int thread,
                                             const BlockState& state,
                                             const Sink& sink) {
  constexpr int kVector = VectorPositions(kSizeBytes);
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
                   PixelBits<kFromBytes>(state, source, offsets[0], c));
      } else {
        uint32_t words[4] = {0, 0, 0, 0};
        DATASETD_UNROLL
        for (int k = 0; k < kVector; ++k) {
          PackElement<kSizeBytes>(
              words, k, PixelBits<kFromBytes>(state, source, offsets[k], c));
        }
        sink.StoreVector(slot + to * kSizeBytes, words);
      }
    }
  }
}

template <bool kFromBytes, int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WritePixels(const AugmentPlan& plan,
                                             int thread,
                                             const BlockState& state,
                                             const Sink& sink) {
  constexpr int kVector = VectorPositions(kSizeBytes);
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
    int32_t offset = cursor.Offset();
    if constexpr (kSizeBytes == 0) {
      sink.Store(slot, size_bytes, batch_first + position,
                 PixelBits<kFromBytes>(state, source, offset, channel));
    } else {
      uint32_t words[4] = {0, 0, 0, 0};
      DATASETD_UNROLL
      for (int k = 0; k < kVector; ++k) {
        PackElement<kSizeBytes>(
            words, k, PixelBits<kFromBytes>(state, source, offset, channel));
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

// As LoadBytes of bytes.h, but bytes outside of [begin, end) are undefined, and
// not read but for the 3 before and behind.
template <int kWords>
DATASETD_HOST_DEVICE inline void LoadBytes(const uint8_t* from,
                                           const uint8_t* begin,
                                           const uint8_t* end,
                                           uint32_t (&bytes)[kWords]) {
  const int offset = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 3);
  const uint8_t* const aligned = from - offset;
  // Only words from `first` to `last` overlap the range.
  const int64_t first = begin - aligned;
  const int64_t last = end - aligned;
  uint32_t word = 0;
  DATASETD_UNROLL
  for (int i = 0; i <= kWords; ++i) {
    uint32_t next = 0;
    if (4 * i + 3 >= first && 4 * i < last && (i < kWords || offset > 0)) {
      next = LoadAs<uint32_t>(aligned, i);
    }
    if (i > 0) bytes[i - 1] = FunnelShift(word, next, 8 * offset);
    word = next;
  }
}

// Returns a pixel's channels as the low bytes of a word; what is above is
// undefined.
template <int kChannels, int kWords>
DATASETD_HOST_DEVICE inline uint32_t PixelBytes(const uint32_t (&bytes)[kWords],
                                                int pixel) {
  const int word = pixel * kChannels / 4;
  const int shift = pixel * kChannels % 4 * 8;
  if (shift + 8 * kChannels <= 32) return bytes[word] >> shift;
  return FunnelShift(bytes[word], bytes[word + 1], shift);
}

// Writes vectors of all channels of as many consecutive pixels of a row.
// REQUIRES: the plan has runs; it pads only if kIsPadded.
template <bool kIsPadded, bool kIsNhwc, int kChannels, int kSizeBytes,
          typename Sink>
DATASETD_HOST_DEVICE inline void WriteRuns(const AugmentPlan& plan, int thread,
                                           const BlockState& state,
                                           const Sink& sink) {
  constexpr int kVector = VectorPositions(kSizeBytes);
  constexpr int kUnit = kIsNhwc ? kVector * kChannels : kVector;
  const BlockWork& work = state.work;
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  const MoveProgram& field = state.field;
  uint8_t* slot = plan.batches[work.batch_index].slot + field.offset_bytes;
  const int32_t row_positions =
      kIsNhwc ? field.out_width * kChannels : field.out_width;
  const int32_t sample_positions = field_plan.positions_per_sample;
  uint32_t fill[kChannels] = {};
  if constexpr (kIsPadded) {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      fill[c] = state.fill_bits[field_plan.padding_move][c];
    }
  }
  // Warps stay together to exchange vectors: a thread behind the end does as
  // the last one, and stores nothing.
  const int lane = kIsNhwc ? thread % 32 : 0;
  for (int32_t i = thread * kUnit; i - lane * kUnit < work.num_positions;
       i += kBlockThreads * kUnit) {
    const int32_t last = work.num_positions - kUnit;
    const int32_t position =
        work.first_position + (kIsNhwc && i > last ? last : i);
    const int32_t row = static_cast<int32_t>(
        field_plan.row_divider.Divide(static_cast<uint32_t>(position)));
    const int32_t in_row = position - row * row_positions;
    const int32_t x = kIsNhwc ? in_row / kChannels : in_row;
    const BlockRow block_row = state.rows[row - work.first_row];
    const ColumnRun run = state.runs[block_row.sample];
    const bool is_row = !IsFill(block_row.entry);
    const uint8_t* const source =
        state.sources[block_row.sample] + (is_row ? block_row.entry : 0);
    // The leftmost column, which a mirrored run has at its end.
    const int32_t first = run.step < 0 ? run.origin - (x + kVector - 1)
                                       : run.origin + run.step * x;
    uint32_t bytes[kVector * kChannels / 4];
    if constexpr (kIsPadded) {
      LoadBytes(source + first * kChannels, source,
                source + field.in_width * kChannels, bytes);
    } else {
      LoadBytes(source + first * kChannels, bytes);
    }
    // Padding if not below `num_inside`, as unsigned numbers.
    const uint32_t from_begin = static_cast<uint32_t>(x - run.begin);
    const uint32_t num_inside =
        is_row ? static_cast<uint32_t>(run.end - run.begin) : 0;
    uint32_t words[kChannels][4] = {};
    DATASETD_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const uint32_t ahead = PixelBytes<kChannels>(bytes, k);
      const uint32_t back = PixelBytes<kChannels>(bytes, kVector - 1 - k);
      const uint32_t pixel = run.step < 0 ? back : ahead;
      const bool is_inside = from_begin + static_cast<uint32_t>(k) < num_inside;
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        uint32_t bits = pixel >> (8 * c) & 0xFF;
        // Runs of bytes are copied.
        if constexpr (kSizeBytes > 1) bits = state.table[c][bits];
        if constexpr (kIsPadded) bits = is_inside ? bits : fill[c];
        if constexpr (kIsNhwc) {
          const int element = k * kChannels + c;
          PackElement<kSizeBytes>(words[element / kVector], element % kVector,
                                  bits);
        } else {
          PackElement<kSizeBytes>(words[c], k, bits);
        }
      }
    }
    if constexpr (kIsNhwc) {
      uint8_t* const to =
          slot + (int64_t{work.first_sample} * sample_positions +
                  work.first_position + i) *
                     kSizeBytes;
      static_assert(kChannels == kExchangedVectors);
      const int32_t left = (work.num_positions - i) / kUnit + lane;
      sink.StoreConsecutive(to, words, lane, left < 32 ? left : 32);
    } else {
      const int32_t sample = block_row.sample;
      uint8_t* to = slot + ((int64_t{work.first_sample} + sample) * kChannels *
                                sample_positions +
                            (position - sample * sample_positions)) *
                               kSizeBytes;
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        sink.StoreVector(to, words[c]);
        to += int64_t{sample_positions} * kSizeBytes;
      }
    }
  }
}

template <bool kIsPadded, int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WriteRunsOf(const AugmentPlan& plan,
                                             int thread,
                                             const BlockState& state,
                                             const Sink& sink) {
  // With one channel the layouts are the same.
  if (state.field.channels == 1) {
    WriteRuns<kIsPadded, false, 1, kSizeBytes>(plan, thread, state, sink);
  } else if (state.field.layout == Layout::kNhwc) {
    WriteRuns<kIsPadded, true, 3, kSizeBytes>(plan, thread, state, sink);
  } else {
    WriteRuns<kIsPadded, false, 3, kSizeBytes>(plan, thread, state, sink);
  }
}

template <int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WriteRunImage(const AugmentPlan& plan,
                                               int thread,
                                               const BlockState& state,
                                               const Sink& sink) {
  if (plan.fields[state.work.plan_index].padding_move >= 0) {
    WriteRunsOf<true, kSizeBytes>(plan, thread, state, sink);
  } else {
    WriteRunsOf<false, kSizeBytes>(plan, thread, state, sink);
  }
}

template <bool kFromBytes, int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WriteImage(const AugmentPlan& plan, int thread,
                                            const BlockState& state,
                                            const Sink& sink) {
  if constexpr (kSizeBytes > 0) {
    if (plan.fields[state.work.plan_index].has_runs) {
      WriteRunImage<kSizeBytes>(plan, thread, state, sink);
      return;
    }
  }
  if (state.field.layout == Layout::kNhwc) {
    WritePixels<kFromBytes, kSizeBytes>(plan, thread, state, sink);
  } else {
    WritePlanes<kFromBytes, kSizeBytes>(plan, thread, state, sink);
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
  const int64_t* indices = batch.indices + work.first_sample;
  const int64_t batch_first =
      int64_t{work.first_sample} * field_plan.positions_per_sample;
  for (int32_t i = thread; i < work.num_positions; i += kBlockThreads) {
    const int32_t position = work.first_position + i;
    const int32_t sample = static_cast<int32_t>(
        field_plan.sample_divider.Divide(static_cast<uint32_t>(position)));
    if (field_plan.field_index == kIndicesField) {
      sink.Store(batch.slot + plan.program->indices_offset_bytes, 8,
                 batch_first + position,
                 static_cast<uint64_t>(
                     SampleIndices(batch)[work.first_sample + sample]));
      continue;
    }
    const MoveProgram& field = plan.program->fields[field_plan.field_index];
    const uint8_t* source =
        field.source + indices[sample] * field.sample_stride_bytes;
    sink.Store(
        batch.slot + field.offset_bytes, DtypeSizeBytes(field.out_dtype),
        batch_first + position,
        CastElementBits(source, field.in_dtype, field.out_dtype,
                        position - sample * field_plan.positions_per_sample));
  }
}

template <typename Sink>
DATASETD_HOST_DEVICE inline void WriteBlock(const AugmentPlan& plan, int thread,
                                            const BlockState& state,
                                            const Sink& sink) {
  if (!IsImageBlock(plan, state)) {
    WriteElements(plan, thread, state, sink);
  } else if (state.field.in_dtype != Dtype::kUint8) {
    WriteImage<false, 0>(plan, thread, state, sink);
  } else {
    switch (plan.fields[state.work.plan_index].vector_positions) {
      case 4:
        WriteImage<true, 4>(plan, thread, state, sink);
        break;
      case 8:
        WriteImage<true, 2>(plan, thread, state, sink);
        break;
      case 16:
        WriteImage<true, 1>(plan, thread, state, sink);
        break;
      default:
        WriteImage<true, 0>(plan, thread, state, sink);
        break;
    }
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MOVES_AUGMENT_BLOCK_H_
