#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "cuda/kernels/host/byte_converter.h"
#include "cuda/kernels/host/byte_vector.h"
#include "cuda/kernels/host/chain_host.h"
#include "cuda/kernels/host/column_runs.h"
#include "cuda/kernels/host/float_converter.h"
#include "cuda/kernels/host/gather.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/crop.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

// Images are processed in tiles. The moved pixels of a tile are gathered into
// scratch memory in in_dtype and the output's layout, and converted from there
// in long loops. If an input value represents the fill, it is gathered too, so
// that the output is written once; else it is painted over.
inline constexpr int32_t kTileColumns = 1024;
inline constexpr int32_t kTileRows = 256;
inline constexpr int32_t kTilePixels = 4096;
inline constexpr int32_t kScratchPixels = kTilePixels + kLoosePixels;

struct Tile {
  int32_t first_row, num_rows;
  int32_t first_column, num_columns;
};

// Returns the elements between the planes of a tile's scratch memory.
int32_t PlaneStride(const Tile& tile) {
  return tile.num_rows * tile.num_columns + kLoosePixels;
}

struct TileMaps {
  int32_t rows[kTileRows];
  int32_t columns[kTileColumns];
  ColumnRun runs[kTileColumns];
  int num_runs;
  bool has_fill;  // in a run
};

// A field and the values common to all its samples. T is its element type.
template <typename Converter>
struct FieldTask {
  using T = typename Converter::Element;

  FieldTask(const FieldProgram& field, const Converter& converter)
      : field(field),
        converter(converter),
        out_size_bytes(DtypeSizeBytes(field.out_dtype)),
        out_pixels(int64_t{field.out_height} * field.out_width),
        vector(BestByteVector()) {
    for (int i = 0; i < field.num_moves; ++i) {
      for (int c = 0; c < field.channels; ++c) {
        fill_bits[i][c] = FillElementBits(field, i, c);
        for (int k = 0; k < kLoosePixels; ++k) {
          const int at = field.layout == Layout::kNhwc && field.channels > 1
                             ? k * field.channels + c
                             : c * kLoosePixels + k;
          fill_patterns[i][at] = converter.fill_byte(i, c);
        }
      }
    }
  }

  const FieldProgram& field;
  const Converter& converter;
  const int64_t out_size_bytes;
  const int64_t out_pixels;
  const ByteVector* const vector;
  uint32_t fill_bits[kMaxMoves][kMaxChannels];
  T fill_patterns[kMaxMoves][kMaxChannels * kLoosePixels];
};

// This file has loops and a prefetcher of its own, beside RunRows and
// Prefetcher: with those a crop of CIFAR was a twentieth slower
// (docs/performance-notes/kernels.md).

// Prefetches the first lines of the next sample, a few at a time, because all
// at once would occupy the fill buffers that stores need.
class SamplePrefetcher {
 public:
  SamplePrefetcher(const uint8_t* sample, int64_t size_bytes)
      : next_(sample), end_(sample + std::min<int64_t>(size_bytes, 4096)) {}

  void FetchSome(int num_lines = 12) {
    for (int i = 0; i < num_lines && next_ < end_; ++i, next_ += 64) {
      __builtin_prefetch(next_);
    }
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

// Paints the fill of a tile over its converted pixels. Out is as wide as the
// output's dtype.
template <typename Out, int kChannels, Layout kLayout, typename Task>
void PaintFill(const Task& task, const Tile& tile, const TileMaps& maps,
               uint8_t* sample) {
  constexpr int64_t kPixelStep = kLayout == Layout::kNhwc ? kChannels : 1;
  Out* to = reinterpret_cast<Out*>(sample);
  for (int32_t r = 0; r < tile.num_rows; ++r) {
    const int64_t first =
        int64_t{tile.first_row + r} * task.field.out_width + tile.first_column;
    for (int k = 0; k < maps.num_runs; ++k) {
      const ColumnRun& run = maps.runs[k];
      const int32_t fill = NearestFill(maps.rows[r], run.entry);
      if (!IsFill(fill)) continue;
      Out value[kChannels];
      for (int c = 0; c < kChannels; ++c) {
        value[c] = static_cast<Out>(task.fill_bits[FillMove(fill)][c]);
      }
      PaintRun<Out, kChannels, kLayout>(value, run.length, task.out_pixels,
                                        to + (first + run.begin) * kPixelStep);
    }
  }
}

// Gathers a tile into `scratch`. Returns true if fill remains to be painted.
template <int kChannels, Layout kLayout, typename Task, typename T>
bool GatherTile(const Task& task, const Tile& tile, const TileMaps& maps,
                const T* image, T* scratch) {
  constexpr int64_t kPixelStep = kLayout == Layout::kNhwc ? kChannels : 1;
  const bool gathers_fill = task.converter.has_fill_bytes();
  const int32_t plane_stride = PlaneStride(tile);
  bool has_fill = false;
  for (int32_t r = 0; r < tile.num_rows; ++r) {
    const int32_t row = maps.rows[r];
    T* to = scratch + int64_t{r} * tile.num_columns * kPixelStep;
    if (IsFill(row) || maps.has_fill) {
      has_fill = true;
      for (int k = 0; gathers_fill && k < maps.num_runs; ++k) {
        const ColumnRun& run = maps.runs[k];
        const int32_t fill = NearestFill(row, run.entry);
        if (!IsFill(fill)) continue;
        PaintRunLoosely<T, kChannels, kLayout>(
            task.fill_patterns[FillMove(fill)], run.length, plane_stride,
            to + run.begin * kPixelStep);
      }
    }
    if (IsFill(row)) continue;
    const T* from = image + int64_t{row} * task.field.in_width * kChannels;
    for (int k = 0; k < maps.num_runs; ++k) {
      const ColumnRun& run = maps.runs[k];
      if (IsFill(run.entry)) continue;
      GatherRun<T, kChannels, kLayout>(from, run, task.vector, to,
                                       plane_stride);
    }
  }
  return has_fill && !gathers_fill;
}

// Writes one tile of the sample at `from` to the output at `to`.
template <int kChannels, Layout kLayout, typename Task, typename T>
void AugmentTile(const Task& task, const Tile& tile, const TileMaps& maps,
                 const uint8_t* from, SamplePrefetcher& prefetcher, T* scratch,
                 uint8_t* to) {
  prefetcher.FetchSome();
  const bool paints_fill = GatherTile<kChannels, kLayout>(
      task, tile, maps, reinterpret_cast<const T*>(from), scratch);
  // A tile of full width is contiguous in the output; a narrower tile has one
  // row.
  const int64_t pixels = int64_t{tile.num_rows} * tile.num_columns;
  const int64_t first =
      int64_t{tile.first_row} * task.field.out_width + tile.first_column;
  if constexpr (kLayout == Layout::kNhwc) {
    task.converter.ConvertPixels(scratch, pixels * kChannels,
                                 to + first * kChannels * task.out_size_bytes);
  } else {
    for (int c = 0; c < kChannels; ++c) {
      prefetcher.FetchSome();
      task.converter.ConvertPlane(
          scratch + c * PlaneStride(tile), pixels, c,
          to + (c * task.out_pixels + first) * task.out_size_bytes);
    }
  }
  if (!paints_fill) return;
  switch (task.out_size_bytes) {
    case 1:
      PaintFill<uint8_t, kChannels, kLayout>(task, tile, maps, to);
      return;
    case 2:
      PaintFill<uint16_t, kChannels, kLayout>(task, tile, maps, to);
      return;
    default:
      PaintFill<uint32_t, kChannels, kLayout>(task, tile, maps, to);
      return;
  }
}

// Elements between checkpoints in data without rows: a multiple of pixels of 1
// to 4 channels and of cache lines.
constexpr int64_t kPieceElements = 48 * 1024;
// Prefetched of the next sample before each piece: all of a small sample, and
// enough of a large one that the processor fetches the rest by itself.
constexpr int kLinesPerPiece = 20;

// For images without moves whose output has the samples' layout. This and the
// functions below return the next row, like RunChainHost.
template <typename Task>
int32_t ConvertImages(const MixtureTable& mixture, const BatchTask& batch,
                      const Task& task) {
  using T = typename Task::T;
  const FieldProgram& field = task.field;
  const int64_t elements = task.out_pixels * field.channels;
  const int32_t end = batch.first_row + NumRows(batch);
  for (int32_t i = batch.first_row; i < end; ++i) {
    if (i > batch.first_row && EndsAtSample()) return i;
    if (!IsOwnRow(mixture, batch, i)) continue;
    const T* const from = reinterpret_cast<const T*>(
        SampleData(mixture, field, batch.indices[i]));
    uint8_t* const to =
        batch.slot + field.offset_bytes + i * elements * task.out_size_bytes;
    const int64_t next_sample =
        batch.indices[std::min(i + 1, batch.num_samples - 1)];
    SamplePrefetcher prefetcher(SampleData(mixture, field, next_sample),
                                field.sample_stride_bytes);
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      if (!GoesOn()) return end;
      prefetcher.FetchSome(kLinesPerPiece);
      task.converter.ConvertPixels(from + first,
                                   std::min(kPieceElements, elements - first),
                                   to + first * task.out_size_bytes);
    }
  }
  return end;
}

template <int kChannels, Layout kLayout, typename Task>
int32_t AugmentImages(const AugmentProgram& program, const BatchTask& batch,
                      const Task& task) {
  using T = typename Task::T;
  const FieldProgram& field = task.field;
  const int64_t sample_bytes =
      task.out_pixels * kChannels * task.out_size_bytes;
  const int32_t tile_columns = std::min(field.out_width, kTileColumns);
  const int32_t tile_rows =
      tile_columns == field.out_width
          ? std::min(kTileRows, kTilePixels / tile_columns)
          : 1;
  // Zeroed once: pixels under fill may be converted before it is painted.
  alignas(64) T scratch[kScratchPixels * kChannels] = {};
  TileMaps maps;
  SampleMoves moves;
  const MixtureTable& mixture = program.mixture;
  const int32_t end = batch.first_row + NumRows(batch);
  for (int32_t i = batch.first_row; i < end; ++i) {
    if (i > batch.first_row && EndsAtSample()) return i;
    if (!IsOwnRow(mixture, batch, i)) continue;
    const uint8_t* const from = SampleData(mixture, field, batch.indices[i]);
    uint8_t* const to = batch.slot + field.offset_bytes + i * sample_bytes;
    const int64_t next_sample =
        batch.indices[std::min(i + 1, batch.num_samples - 1)];
    SamplePrefetcher prefetcher(SampleData(mixture, field, next_sample),
                                field.sample_stride_bytes);
    DrawMoves(field, program.seed, batch.epoch, DrawIndex(batch, i), &moves);
    Tile tile = {};
    for (tile.first_column = 0; tile.first_column < field.out_width;
         tile.first_column += tile_columns) {
      tile.num_columns =
          std::min(tile_columns, field.out_width - tile.first_column);
      MapAxis(field, moves.axis[1], tile.first_column, tile.num_columns,
              maps.columns);
      maps.num_runs = FindRuns(maps.columns, tile.num_columns, maps.runs);
      maps.has_fill =
          std::any_of(maps.runs, maps.runs + maps.num_runs,
                      [](const ColumnRun& run) { return IsFill(run.entry); });
      for (tile.first_row = 0; tile.first_row < field.out_height;
           tile.first_row += tile_rows) {
        if (!GoesOn()) return end;
        tile.num_rows = std::min(tile_rows, field.out_height - tile.first_row);
        MapAxis(field, moves.axis[0], tile.first_row, tile.num_rows, maps.rows);
        AugmentTile<kChannels, kLayout>(task, tile, maps, from, prefetcher,
                                        scratch, to);
      }
    }
  }
  return end;
}

template <int kChannels, typename Task>
int32_t AugmentLayout(const AugmentProgram& program, const BatchTask& batch,
                      const Task& task) {
  // With one channel both layouts are the same.
  const bool is_interleaved =
      kChannels == 1 || task.field.layout == Layout::kNhwc;
  if (is_interleaved && task.field.num_moves == 0) {
    return ConvertImages(program.mixture, batch, task);
  }
  if (kChannels > 1 && is_interleaved) {
    return AugmentImages<kChannels, Layout::kNhwc>(program, batch, task);
  }
  return AugmentImages<kChannels, Layout::kNchw>(program, batch, task);
}

template <typename Converter>
int32_t AugmentField(const AugmentProgram& program, const FieldProgram& field,
                     const BatchTask& batch, const Converter& converter) {
  const FieldTask<Converter> task(field, converter);
  switch (field.channels) {
    case 1:
      return AugmentLayout<1>(program, batch, task);
    case 2:
      return AugmentLayout<2>(program, batch, task);
    case 3:
      return AugmentLayout<3>(program, batch, task);
    default:
      return AugmentLayout<4>(program, batch, task);
  }
}

// Calls visit(T()) if T is the type of an integer that int64 is wider than, as
// that of tokens is; else returns false.
template <typename Visit>
bool VisitNarrow(Dtype dtype, const Visit& visit) {
  switch (dtype) {
    case Dtype::kUint8:
      return visit(uint8_t());
    case Dtype::kInt8:
      return visit(int8_t());
    case Dtype::kInt16:
      return visit(int16_t());
    case Dtype::kUint16:
      return visit(uint16_t());
    case Dtype::kUint32:
      return visit(uint32_t());
    case Dtype::kInt32:
      return visit(int32_t());
    default:
      return false;
  }
}

// Copies elements first .. first + count of a sample.
void CopyElements(const FieldProgram& field, const uint8_t* from, int64_t first,
                  int64_t count, uint8_t* to) {
  const int64_t size_bytes = DtypeSizeBytes(field.out_dtype);
  if (field.in_dtype == field.out_dtype) {
    std::memcpy(to + first * size_bytes, from + first * size_bytes,
                static_cast<size_t>(count * size_bytes));
    return;
  }
  const auto widen = [&](auto type) {
    const auto* const in = reinterpret_cast<const decltype(type)*>(from);
    auto* const out = reinterpret_cast<int64_t*>(to);
    for (int64_t k = first; k < first + count; ++k) {
      out[k] = static_cast<int64_t>(in[k]);
    }
    return true;
  };
  if (field.out_dtype == Dtype::kInt64 && VisitNarrow(field.in_dtype, widen)) {
    return;
  }
  for (int64_t k = first; k < first + count; ++k) {
    StoreBits(to, DtypeSizeBytes(field.out_dtype), k,
              CastElementBits(from, field.in_dtype, field.out_dtype, k));
  }
}

// Writes elements first .. first + count of a row with these entries.
void CopyEntries(const FieldProgram& field, const int64_t* entries,
                 int64_t first, int64_t count, uint8_t* to) {
  // As EntryElementBits.
  const int64_t* const row = entries + field.first_entry;
  const auto gather = [&](auto type) {
    using In = decltype(type);
    auto* const out = reinterpret_cast<int64_t*>(to);
    for (int64_t k = first; k < first + count; ++k) {
      const bool is_filled =
          row[k] < 0 || (field.fills_starts && EntryPosition(row[k]) == 0);
      out[k] = is_filled ? static_cast<int64_t>(field.fill)
                         : static_cast<int64_t>(
                               LoadAs<In>(field.source, EntryStep(row[k])));
    }
    return true;
  };
  if (field.entry_kind == EntryKind::kStep && field.entry_elements == 1 &&
      field.out_dtype == Dtype::kInt64 && VisitNarrow(field.in_dtype, gather)) {
    return;
  }
  if (field.entry_kind == EntryKind::kPosition) {
    auto* const out = reinterpret_cast<int64_t*>(to);
    for (int64_t k = first; k < first + count; ++k) {
      out[k] =
          row[k] < 0 ? static_cast<int64_t>(field.fill) : EntryPosition(row[k]);
    }
    return;
  }
  if (field.entry_kind == EntryKind::kNumber) {
    auto* const out = reinterpret_cast<int32_t*>(to);
    for (int64_t k = first; k < first + count; ++k) {
      out[k] = static_cast<int32_t>(row[k]);
    }
    return;
  }
  const int size_bytes = DtypeSizeBytes(field.out_dtype);
  for (int64_t k = first; k < first + count; ++k) {
    StoreBits(to, size_bytes, k,
              EntryElementBits(field, entries, static_cast<int32_t>(k)));
  }
}

// Writes elements first .. first + count of a row that is a crop.
void CopyCrop(const FieldProgram& field, const RowCrop& crop, int64_t first,
              int64_t count, uint8_t* to) {
  // As CropElementBits.
  if (field.has_length) {
    StoreAs<int64_t>(to, 0, DeliveredLength(field, crop.num_steps));
    return;
  }
  const int64_t num_valid = std::clamp<int64_t>(
      int64_t{crop.num_steps} * field.step_elements - first, 0, count);
  if (num_valid > 0) CopyElements(field, crop.data, first, num_valid, to);
  const int size_bytes = DtypeSizeBytes(field.out_dtype);
  for (int64_t k = first + num_valid; k < first + count; ++k) {
    StoreBits(to, size_bytes, k, field.fill);
  }
}

int32_t CopyOther(const AugmentProgram& program, const FieldProgram& field,
                  const BatchTask& batch) {
  const MixtureTable& mixture = program.mixture;
  const int64_t row_bytes =
      int64_t{field.in_width} * DtypeSizeBytes(field.out_dtype);
  const int64_t elements = field.in_width;
  const int32_t end = batch.first_row + NumRows(batch);
  for (int32_t i = batch.first_row; i < end; ++i) {
    if (i > batch.first_row && EndsAtSample()) return i;
    if (!IsOwnRow(mixture, batch, i)) continue;
    uint8_t* const to = batch.slot + field.offset_bytes + i * row_bytes;
    const bool has_entries = field.entry_kind != EntryKind::kNone;
    const bool has_crop = field.crop_kind != CropKind::kNone;
    const RowCrop crop =
        has_crop ? CropRow(program, field, batch, i) : RowCrop();
    const uint8_t* const from =
        has_entries || has_crop ? nullptr
                                : SampleData(mixture, field, batch.indices[i]);
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      if (!GoesOn()) return end;
      const int64_t count = std::min(kPieceElements, elements - first);
      if (has_entries) {
        CopyEntries(field, batch.indices + int64_t{i} * program.row_entries,
                    first, count, to);
      } else if (has_crop) {
        CopyCrop(field, crop, first, count, to);
      } else {
        CopyElements(field, from, first, count, to);
      }
    }
  }
  return end;
}

void WriteIndices(const AugmentProgram& program, const BatchTask& batch) {
  const int64_t* const from = SampleIndices(batch);
  uint8_t* const to = batch.slot + program.indices_offset_bytes;
  if (program.mixture.num_parts == 0) {
    std::memcpy(to, from,
                static_cast<size_t>(batch.num_samples) * sizeof(int64_t));
    return;
  }
  auto* const published = reinterpret_cast<int64_t*>(to);
  for (int32_t i = 0; i < batch.num_samples; ++i) {
    published[i] = PublishedIndex(program.mixture, from[i]);
  }
}

int32_t RunField(const AugmentProgram& program, const FieldProgram& field,
                 const BatchTask& batch) {
  if (field.num_steps > 0) return RunChainHost(program, field, batch);
  // The chain that mixes these labels writes them.
  if (field.num_classes > 0) return batch.first_row + NumRows(batch);
  if (!field.is_image) return CopyOther(program, field, batch);
  if (field.in_dtype == Dtype::kUint8) {
    return AugmentField(program, field, batch, ByteConverter(field));
  }
  return AugmentField(program, field, batch, FloatConverter(field));
}

}  // namespace

bool AugmentHostFrom(const AugmentProgram& program, const BatchTask& batch,
                     HostPosition* position) {
  const int32_t num_rows = NumRows(batch);
  if (num_rows == 0) return true;
  const int32_t end = batch.first_row + num_rows;
  for (; position->field < program.num_fields; ++position->field) {
    BatchTask part = batch;
    part.first_row = std::max(position->row, batch.first_row);
    part.num_rows = end - part.first_row;
    position->row = RunField(program, program.fields[position->field], part);
    if (position->row < end) {
      StreamFence();  // another thread may continue
      return false;
    }
    position->row = 0;
  }
  if (program.indices_offset_bytes >= 0 && IsLastPart(batch)) {
    WriteIndices(program, batch);
  }
  StreamFence();
  return true;
}

void AugmentHost(const AugmentProgram& program, const BatchTask& batch) {
  HostPosition position;
  while (!AugmentHostFrom(program, batch, &position)) {
  }
}

}  // namespace datasetd
