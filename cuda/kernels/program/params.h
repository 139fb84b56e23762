// What one launch of the augment kernel does: plain structs that host and
// device share. No pointers into host memory but where said, no ownership.
//
// A feed's AugmentProgram is made once, at OpenFeed
// (server/pipeline/pipeline.h), and lives in device memory. A launch adds the
// BatchTasks.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_PARAMS_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_PARAMS_H_

#include <cstdint>
#include <type_traits>

#include "base/checked_math.h"
#include "base/dtype.h"
#include "cuda/kernels/math/host_device.h"

namespace datasetd {

// Of a side of an image at any stage: floats still tell all pixels apart, and
// products of a few sides fit into 64 bits.
inline constexpr int32_t kMaxExtent = 1 << 24;
inline constexpr int kMaxChannels = 4;
inline constexpr int kMaxMoves = 16;
inline constexpr int kMaxValueOps = 4;
inline constexpr int kMaxFields = 8;
inline constexpr int kMaxSteps = 32;
inline constexpr int kMaxStepParamsBytes = 128;
inline constexpr int kMaxBatchesPerLaunch = 32;

enum class Layout : uint8_t {
  kNchw = 1,
  kNhwc = 2,
};

enum class PaddingMode : uint8_t {
  kConstant = 1,
  kEdge = 2,
  kReflect = 3,
  kSymmetric = 4,
};

enum class MoveKind : uint8_t {
  // Fixed window at (top, left) of the input.
  kCrop = 1,
  // Window of the output's size at a position drawn per sample: draw word 0
  // gives top in [0, in_height - out_height], word 1 gives left, both inclusive
  // (random.h, UniformInt).
  kRandomCrop = 2,
  // top rows above, left columns before; out size includes right and bottom.
  kPad = 3,
  // Mirrored if draw word 0, as UniformFloat, is below `probability`.
  kHorizontalFlip = 4,
  kVerticalFlip = 5,
  // Mirrored left-right if bit 0 of word 0, drawn with epoch 0 in the counter,
  // differs from the lowest bit of the epoch.
  kAlternatingFlip = 6,
};

// An integer move of pixels: every output pixel is one input pixel or fill.
struct Move {
  MoveKind kind;
  PaddingMode padding_mode;
  uint16_t position;  // as Step's
  // The op's position in the user's pipeline: Philox counter word.
  uint32_t op_index;
  int32_t in_height, in_width;
  int32_t out_height, out_width;
  int32_t top, left;
  float probability;
  // Of kPad with kConstant: the value that the output gets, already taken
  // through the value ops that follow the pad.
  float fill[kMaxChannels];
};

enum class ValueOpKind : uint8_t {
  // x / divisor
  kDivide = 1,
  // (x - mean[c]) / std[c]
  kNormalize = 2,
};

struct ValueOp {
  ValueOpKind kind;
  uint16_t position;  // as Step's
  float divisor;
  float mean[kMaxChannels];
  float std[kMaxChannels];
};

// One field of a batch, as far as integer moves and value ops do it: resident
// samples -> slot.
//
// Image: in [N, in_height, in_width, channels] of in_dtype (kUint8 or
// kFloat32), moved by `moves`, taken through `value_ops` in float32 and rounded
// once to out_dtype (kUint8, kFloat16, kBfloat16, kFloat32; to nearest even).
// in_dtype == out_dtype without value ops is a copy of bits.
//
// Not an image: in_height is 1, in_width the number of elements, channels 1,
// no moves; out_dtype is in_dtype (bits are copied), kInt64 from an integer
// type, or a float type by static_cast.
struct MoveProgram {
  const uint8_t* source;  // device memory, of sample 0
  int64_t sample_stride_bytes;
  Dtype in_dtype;
  Dtype out_dtype;
  Layout layout;
  bool is_image;
  int32_t in_height, in_width;
  int32_t out_height, out_width;
  int32_t channels;
  int32_t num_moves;
  int32_t num_value_ops;
  int64_t offset_bytes;  // of the field in the slot
  Move moves[kMaxMoves];
  ValueOp value_ops[kMaxValueOps];
};

enum class StepKind : uint16_t;  // ops/op_table.h

// How the image before a step of a ragged field makes the one after it
// (sized_step.h). Beside size_args the rules read out_height, out_width and the
// step's Move.
enum class SizeRule : uint8_t {
  kFixed = 0,     // both are as the step says; so is all after it
  kTo,            // any size -> the step's
  kKeep,          // the same
  kPad,           // by the move's top and left, and {right, bottom}
  kPadIfNeeded,   // so, and by the lack of {.., .., height, width} on each side
  kPadForCenter,  // to {height, width} at least, half of it on each side
  kPadForWindow,  // as far as the window {top, left, height, width} reaches
  kCenter,        // a window of the step's size in the middle
  kWhole,         // the whole image is resized to the step's size
  kShorterEdge,   // so, to a shorter edge of {edge}, {.., longest} at most
};
inline constexpr int kNumSizeArgs = 4;

// One op of a chain. Applied to a sample if each of the two gates lets it:
// word 0 of draw 0 of the gate's op index, as UniformFloat, is below the
// probability; 1 and above is always.
struct Step {
  StepKind kind;
  uint16_t position;  // of the op in the user's pipeline, for people
  uint32_t op_index;  // Philox counter word; also of the op's own gate
  float probability;
  uint32_t group_op_index;  // of the RandomApply around it
  float group_probability;
  // Of the leading steps of a ragged field the largest of any sample, but for
  // what the rule fixes.
  int32_t in_height, in_width;
  int32_t out_height, out_width;
  int32_t out_channels;
  SizeRule size_rule;
  int32_t size_args[kNumSizeArgs];
  // The kind's parameters (ops/op_table.h).
  alignas(8) uint8_t params[kMaxStepParamsBytes];
};

// How an image is mixed with the one of the row before it in the batch.
enum class MixKind : uint8_t {
  kNone = 0,
  kMixUp = 1,
  kCutMix = 2,
};

// The last op of a chain, which needs a batch (ops/mix.h).
struct MixProgram {
  MixKind kind;
  bool per_sample;       // drawn for each row, else once for the batch
  uint16_t position;     // as Step's
  uint32_t op_index;     // Philox counter word
  int32_t labels_field;  // in AugmentProgram::fields; negative: none
  double alpha;          // positive and finite
};

// The parts of a chain's scratch memory, in elements of 4 bytes: one of its two
// images, the rows between the passes of a resize, one row of the image with
// its channels apart, the taps of both axes, the maps of both axes, and the
// image that is mixed in.
struct ChainScratch {
  int64_t image_elements;
  int64_t row_elements;
  int64_t line_elements;
  int64_t tap_elements;
  int64_t map_elements;
  int64_t partner_elements;  // 0 without a mix
};

// Where a sample of a ragged field lies, from the field's source on, and its
// size. Samples stand one after another, each kRaggedAlignmentBytes aligned.
struct RaggedSample {
  int64_t offset_bytes;
  int32_t height, width;
};
inline constexpr int64_t kRaggedAlignmentBytes = 16;

// A field. Without steps it is its MoveProgram. With steps it is a chain
// (chain.h): an image of in_dtype (kUint8, kFloat16, kBfloat16, kFloat32) goes
// through the steps as float32, in the image's own units, and is rounded
// once to out_dtype; moves and value ops are steps then. A mix comes after the
// steps, before the rounding; a field with one has steps.
//
// Ragged: samples of their own size, where `ragged` says. The field has steps,
// and the first num_sized_steps of them give all samples one size; in_height
// and in_width are the largest.
struct FieldProgram : MoveProgram {
  const RaggedSample* ragged;  // device memory, by sample; null: one size
  int32_t num_sized_steps;
  int32_t num_steps;
  int32_t out_channels;
  // Of labels, integers below it, that the chain which mixes them writes:
  // float32 [num_classes] of a sample. 0: no such field.
  int32_t num_classes;
  // Estimated, for one sample, the largest of a ragged field; each is about a
  // multiplication and an addition of one element. For planning on the host.
  int64_t operations;
  MixProgram mix;
  ChainScratch scratch;
  Step steps[kMaxSteps];
};

struct AugmentProgram {
  // Of the chains: num_teams stretches of team_scratch_bytes, after one flag
  // of kTeamFlagBytes for each (chain_scratch.h). Null without chains.
  uint8_t* scratch;
  int64_t team_scratch_bytes;
  int32_t num_teams;
  uint64_t seed;                 // Philox key
  int64_t indices_offset_bytes;  // int64 per sample; negative: not written
  int32_t num_fields;
  FieldProgram fields[kMaxFields];
};

// Estimated operations for one sample of a batch, all fields together.
inline int64_t EstimatedOperations(const AugmentProgram& program) {
  int64_t operations = 0;
  for (int i = 0; i < program.num_fields; ++i) {
    operations = SaturatingAdd(operations, program.fields[i].operations);
  }
  return operations;
}

// One batch of a launch. Rows num_samples.. of the slot are left untouched.
struct BatchTask {
  uint8_t* slot;           // device memory, 256-byte aligned
  const int64_t* indices;  // readable by the device, until completion
  int32_t num_samples;
  // In the epoch, counted over all ranks: what mixes draw by.
  uint32_t batch_index;
  uint64_t epoch;
  // What row i draws by (move.h, DrawIndex): its sample index where draw_step
  // is 0, else first_draw + i * draw_step, below 2^32.
  int64_t first_draw;
  int64_t draw_step;
  // A batch may be launched in parts, of num_rows rows from first_row on; 0 is
  // all from there. Parts go in order; fields without steps and the indices
  // may be written as a whole by the last of them.
  int32_t first_row;
  int32_t num_rows;
};

// The rows that a launch of the batch is to fill.
DATASETD_HOST_DEVICE inline int32_t NumRows(const BatchTask& batch) {
  const int32_t left = batch.num_samples - batch.first_row;
  if (left <= 0) return 0;
  return batch.num_rows > 0 && batch.num_rows < left ? batch.num_rows : left;
}

// Whether no part comes after this launch.
DATASETD_HOST_DEVICE inline bool IsLastPart(const BatchTask& batch) {
  return batch.first_row + NumRows(batch) >= batch.num_samples;
}

static_assert(std::is_trivially_copyable_v<AugmentProgram>);
static_assert(std::is_trivially_copyable_v<BatchTask>);
static_assert(sizeof(RaggedSample) == 16);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_PARAMS_H_
