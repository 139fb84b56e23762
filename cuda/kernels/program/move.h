// Integer moves of pixels: draws their parameters for a sample, and maps output
// coordinates to input coordinates.
//
// Moves treat rows and columns alike and independently, so a sample's geometry
// is one map per axis, from output coordinate to input coordinate or to the
// move whose fill the pixel gets. If both axes give a fill, the later move
// wins, since it painted last.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_MOVE_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_MOVE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

enum class Axis : uint8_t { kY = 0, kX = 1 };

// One move along one axis, as drawn for one sample. Output coordinate c comes
// from `origin` + c, or `origin` - c if `is_mirrored`; coordinates outside [0,
// size) are padding.
struct AxisMove {
  int32_t origin;
  int32_t size;  // of the move's input
  bool is_mirrored;
  bool is_padded;
};

// The moves of one field along both axes, as drawn for one sample.
struct SampleMoves {
  AxisMove axis[2][kMaxMoves];
};

// Returns the map entry for the fill of a move; other entries are input
// coordinates. A later move has a smaller entry.
DATASETD_HOST_DEVICE inline int32_t FillEntry(int move_index) {
  return -1 - move_index;
}
DATASETD_HOST_DEVICE inline bool IsFill(int32_t entry) { return entry < 0; }
DATASETD_HOST_DEVICE inline int FillMove(int32_t entry) { return -1 - entry; }
DATASETD_HOST_DEVICE inline int32_t NearestFill(int32_t y_entry,
                                                int32_t x_entry) {
  return y_entry < x_entry ? y_entry : x_entry;
}

// Draws `move` for one sample, along `axis`.
DATASETD_HOST_DEVICE inline AxisMove DrawAxisMove(const Move& move, Axis axis,
                                                  uint64_t seed, uint64_t epoch,
                                                  int64_t sample) {
  const bool is_y = axis == Axis::kY;
  AxisMove drawn;
  drawn.origin = 0;
  drawn.size = is_y ? move.in_height : move.in_width;
  drawn.is_mirrored = false;
  drawn.is_padded = false;
  const uint32_t epoch_word = static_cast<uint32_t>(epoch);
  const uint32_t sample_word = static_cast<uint32_t>(sample);
  switch (move.kind) {
    case MoveKind::kCrop:
      drawn.origin = is_y ? move.top : move.left;
      break;
    case MoveKind::kRandomCrop: {
      const Words4 words =
          Draw(seed, 0, move.op_index, epoch_word, sample_word);
      const int32_t out_size = is_y ? move.out_height : move.out_width;
      drawn.origin = static_cast<int32_t>(
          UniformInt(words.word[is_y ? 0 : 1],
                     static_cast<uint32_t>(drawn.size - out_size + 1)));
      break;
    }
    case MoveKind::kPad:
      drawn.origin = is_y ? -move.top : -move.left;
      drawn.is_padded = true;
      break;
    case MoveKind::kHorizontalFlip:
    case MoveKind::kVerticalFlip:
      if (is_y == (move.kind == MoveKind::kVerticalFlip)) {
        const Words4 words =
            Draw(seed, 0, move.op_index, epoch_word, sample_word);
        drawn.is_mirrored = UniformFloat(words.word[0]) < move.probability;
      }
      break;
    case MoveKind::kAlternatingFlip:
      if (!is_y) {
        const Words4 words = Draw(seed, 0, move.op_index, 0, sample_word);
        drawn.is_mirrored = ((words.word[0] ^ epoch_word) & 1) != 0;
      }
      break;
  }
  if (drawn.is_mirrored) drawn.origin = drawn.size - 1;
  return drawn;
}

// Returns the index that seeds row `row` of a batch: its sample index, or its
// position if samples may repeat.
DATASETD_HOST_DEVICE inline int64_t DrawIndex(const BatchTask& batch,
                                              int64_t row) {
  if (batch.draw_step == 0) return SampleIndices(batch)[row];
  if (batch.draw_group == 0) return batch.first_draw + row * batch.draw_step;
  return batch.first_draw + row / batch.draw_group * batch.draw_step +
         row % batch.draw_group;
}

DATASETD_HOST_DEVICE inline void DrawMoves(const MoveProgram& field,
                                           uint64_t seed, uint64_t epoch,
                                           int64_t sample, SampleMoves* moves) {
  for (int i = 0; i < field.num_moves; ++i) {
    for (int axis = 0; axis < 2; ++axis) {
      moves->axis[axis][i] = DrawAxisMove(
          field.moves[i], static_cast<Axis>(axis), seed, epoch, sample);
    }
  }
}

// Returns the source of coordinate `c` of a padded input of `size`, or -1 for
// fill. Coordinates in the padding are folded once, then clamped.
DATASETD_HOST_DEVICE inline int32_t Unpad(int32_t c, int32_t size,
                                          PaddingMode mode) {
  if (c >= 0 && c < size) return c;
  switch (mode) {
    case PaddingMode::kConstant:
      return -1;
    case PaddingMode::kEdge:
      break;
    case PaddingMode::kReflect:
      c = c < 0 ? -c : 2 * (size - 1) - c;
      break;
    case PaddingMode::kSymmetric:
      c = c < 0 ? -1 - c : 2 * size - 1 - c;
      break;
  }
  return c < 0 ? 0 : c >= size ? size - 1 : c;
}

// Returns the entry of one move for coordinate `c` of its output.
DATASETD_HOST_DEVICE inline int32_t MapBackOne(const AxisMove& drawn,
                                               PaddingMode mode, int move_index,
                                               int32_t c) {
  c = drawn.is_mirrored ? drawn.origin - c : drawn.origin + c;
  if (!drawn.is_padded) return c;
  c = Unpad(c, drawn.size, mode);
  return c < 0 ? FillEntry(move_index) : c;
}

// Returns the entry of one axis for output coordinate `c` of all moves.
DATASETD_HOST_DEVICE inline int32_t MapBack(const MoveProgram& field,
                                            const AxisMove* drawn, int32_t c) {
  for (int i = field.num_moves - 1; i >= 0; --i) {
    c = MapBackOne(drawn[i], field.moves[i].padding_mode, i, c);
    if (IsFill(c)) return c;
  }
  return c;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_MOVE_H_
