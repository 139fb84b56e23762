// Parameters of one launch of the augment kernel: plain structs shared by host
// and device. They own nothing and do not point into host memory, unless noted.
//
// A feed's AugmentProgram is compiled once, at OpenFeed
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

// Largest side of an image at any stage: floats can still represent every pixel
// coordinate, and products of a few sides fit 64 bits.
inline constexpr int32_t kMaxExtent = 1 << 24;
inline constexpr int kMaxChannels = 4;
inline constexpr int kMaxMoves = 16;
inline constexpr int kMaxValueOps = 4;
inline constexpr int kMaxFields = 8;
inline constexpr int kMaxSteps = 32;
inline constexpr int kMaxPasses = 2 * kMaxSteps + 1;
inline constexpr int kMaxStepParamsBytes = 128;
inline constexpr int kMaxBatchesPerLaunch = 32;
inline constexpr int kMaxMixtureParts = 64;  // datasets of a mixture

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
  // Adds `top` rows above and `left` columns before; the output size includes
  // right and bottom.
  kPad = 3,
  // Mirrored if draw word 0, as UniformFloat, is below `probability`.
  kHorizontalFlip = 4,
  kVerticalFlip = 5,
  // Mirrored left-right if bit 0 of word 0, drawn with epoch 0 in the counter,
  // differs from the lowest bit of the epoch.
  kAlternatingFlip = 6,
};

// A move of pixels by integers: every output pixel is an input pixel or fill.
struct Move {
  MoveKind kind;
  PaddingMode padding_mode;
  uint16_t position;  // as in Step
  // The op's position in the user's pipeline: Philox counter word.
  uint32_t op_index;
  int32_t in_height, in_width;
  int32_t out_height, out_width;
  int32_t top, left;
  float probability;
  // For kPad with kConstant: the output value, with the value ops that follow
  // the pad already applied.
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
  uint16_t position;  // as in Step
  float divisor;
  float mean[kMaxChannels];
  float std[kMaxChannels];
};

// One field of a batch as computed by integer moves and value ops, from
// resident samples to the slot.
//
// Image: [N, in_height, in_width, channels] of in_dtype (kUint8 or kFloat32),
// moved by `moves`, transformed by `value_ops` in float32 and rounded once, to
// nearest even, to out_dtype (kUint8, kFloat16, kBfloat16, kFloat32). If
// in_dtype == out_dtype and there are no value ops, bits are copied.
//
// Other fields: in_height is 1, in_width the number of elements, channels 1, no
// moves. out_dtype is in_dtype (bits are copied), kInt64 from an integer type,
// or a float type by static_cast.
struct MoveProgram {
  const uint8_t* source;  // device memory, of sample 0; read by aligned words
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

// How the output size of a step of a ragged field follows from its input size
// (sized_step.h). Rules use size_args, out_height, out_width and the step's
// Move.
enum class SizeRule : uint8_t {
  kFixed = 0,     // both sizes are the step's; so are all later ones
  kTo,            // any size -> the step's
  kKeep,          // the same
  kPad,           // pads by the move's top and left, and {right, bottom}
  kPadIfNeeded,   // kPad, then up to size_args[2] x [3] on each side
  kPadForCenter,  // to at least {height, width}, half on each side
  kPadForWindow,  // to contain the window {top, left, height, width}
  kCenter,        // a centred window of the step's size
  kWhole,         // resizes the whole image to the step's size
  kShorterEdge,   // resizes the shorter edge to {edge}, longer <= {.., longest}
};
inline constexpr int kNumSizeArgs = 4;

// One op of a chain. It is applied to a sample if it passes two gates: word 0
// of draw 0 of the gate's op index, as UniformFloat, is below the probability.
// Probabilities >= 1 always pass.
struct Step {
  StepKind kind;
  uint16_t position;  // of the op in the user's pipeline, for messages
  uint32_t op_index;  // Philox counter word, also for the op's own gate
  float probability;
  uint32_t group_op_index;  // of the RandomApply around it
  float group_probability;
  // For the leading steps of a ragged field: the largest size of any sample,
  // unless the rule fixes it.
  int32_t in_height, in_width;
  int32_t out_height, out_width;
  int32_t out_channels;
  SizeRule size_rule;
  int32_t size_args[kNumSizeArgs];
  // Parameters of the kind (ops/op_table.h).
  alignas(8) uint8_t params[kMaxStepParamsBytes];
};

template <typename Params>
DATASETD_HOST_DEVICE const Params& ParamsAs(const Step& step) {
  static_assert(std::is_trivially_copyable_v<Params>);
  static_assert(sizeof(Params) <= kMaxStepParamsBytes && alignof(Params) <= 8);
  return *reinterpret_cast<const Params*>(step.params);
}

// The source of the pixels of a pass.
enum class PassSource : uint8_t {
  kMoves = 0,  // input pixels, moved
  kResize,     // which moves may follow in the same pass
  kWarp,
  kSharpness,
  kBlurX,  // the rows' part of a blur
  kBlurY,
};

// A pass of a chain: makes an image of another by one source, moves it, and
// applies pixelwise steps. The passes of a field follow from its steps; a
// pass that a sample's draws leave out gives its steps to the pass before it
// (chain_pass.h).
struct ChainPass {
  PassSource source;
  // The first step of the pass; its source, unless that is kMoves.
  uint8_t first_step;
  uint8_t end_step;
  // The drawn kind of the first step decides about the source, and whether the
  // pass begins.
  bool is_drawn;
  // The pass begins if its first step is applied and one of these steps is
  // applied in the pass before it or is the first step itself.
  uint32_t after;
};

// How an image is mixed with the previous row's image in the batch.
enum class MixKind : uint8_t {
  kNone = 0,
  kMixUp = 1,
  kCutMix = 2,
};

// Mix op, the last op of a chain (ops/mix.h).
struct MixProgram {
  MixKind kind;
  bool per_sample;       // drawn per row, else once per batch
  uint16_t position;     // as in Step
  uint32_t op_index;     // Philox counter word
  int32_t labels_field;  // index in AugmentProgram::fields; < 0: none
  double alpha;          // positive and finite
};

// Sizes of the parts of a chain's scratch memory, in elements of 4 bytes: the
// two images that passes write in turn, the rows between the two sums of a
// resize, one planar row of the image, the taps of both axes, the maps of both
// axes, and the image that is mixed in. No sample needs more.
struct ChainScratch {
  int64_t image_elements[2];
  int64_t row_elements;
  int64_t line_elements;
  int64_t tap_elements;
  int64_t map_elements;
  int64_t partner_elements;  // 0 without a mix
};

// Offset of a ragged field's sample from the field's source, and its size.
// Samples are consecutive, each aligned to kRaggedAlignmentBytes.
struct RaggedSample {
  int64_t offset_bytes;
  int32_t height, width;
};
inline constexpr int64_t kRaggedAlignmentBytes = 16;

// Where a row's steps are not consecutive samples, indices are entries:
// AugmentProgram::row_entries of them for each row. The entry of a step has the
// sample in its lower bits, and its position in a document in the upper ones;
// kNoEntry is a place that stays empty. Other entries are plain numbers.
inline constexpr int kEntryStepBits = 40;
inline constexpr int64_t kMaxEntrySteps = int64_t{1} << kEntryStepBits;
inline constexpr int64_t kMaxEntryPosition = (int64_t{1} << 23) - 1;
inline constexpr int64_t kNoEntry = -1;

DATASETD_HOST_DEVICE inline int64_t MakeEntry(int64_t step, int64_t position) {
  return position << kEntryStepBits | step;
}
DATASETD_HOST_DEVICE inline int64_t EntryStep(int64_t entry) {
  return entry & (kMaxEntrySteps - 1);
}
DATASETD_HOST_DEVICE inline int64_t EntryPosition(int64_t entry) {
  return entry >> kEntryStepBits;
}

// Where the crop of a ragged field's sample begins: see crop.h.
enum class CropKind : uint8_t {
  kNone = 0,  // there is none
  kStart = 1,
  kCenter = 2,
  kRandom = 3,
};

// What a field, which is not an image, has of a row's entries.
enum class EntryKind : uint8_t {
  kNone = 0,      // there are none: indices are of rows
  kStep = 1,      // the sample of each step
  kPosition = 2,  // the position of each step, as int64; 0 where it is empty
  kNumber = 3,    // the entries themselves, as int32
};

// A field. Without steps, its MoveProgram describes it. With steps it is a
// chain (chain_executor.h): an image of in_dtype (kUint8, kFloat16, kBfloat16,
// kFloat32) is transformed by the steps as float32, in its own units, and
// rounded once to out_dtype; moves and value ops are then steps. A mix follows
// the steps and precedes the rounding; it requires steps. A field that is not
// an image may have steps, too (sequence_executor.h): any dtype goes in, and
// its out_channels x out_height x out_width elements are those of the last
// step.
//
// Ragged fields have samples of different sizes, located by `ragged`. Images
// have steps, of which the first num_sized_steps give all samples the same
// size; in_height and in_width are the largest. Other fields have crops.
struct FieldProgram : MoveProgram {
  const RaggedSample* ragged;  // device memory, by sample; null: not ragged
  // In place of `source` and `ragged` where MixtureTable::is_in_place: by part.
  const uint8_t* part_sources[kMaxMixtureParts];
  const RaggedSample* part_ragged[kMaxMixtureParts];
  int32_t num_sized_steps;
  int32_t num_steps;
  int32_t out_channels;
  // For labels that a chain mixes: labels are below num_classes, and the chain
  // writes them as float32 [num_classes] per sample. 0 for other fields.
  int32_t num_classes;
  // The field begins at first_entry of a row's entries, of which each gives
  // entry_elements elements. Empty places have the bits `fill`, and so have the
  // first steps of documents if fills_starts.
  EntryKind entry_kind;
  bool fills_starts;
  int32_t first_entry;
  int32_t entry_elements;
  // A row is crop_length steps of its sample, of step_elements elements each,
  // and after those the bits `fill`; or if has_length, the number of the
  // sample's steps among them, or of the frames that these make, as int64. All
  // samples have sample_steps steps; 0: as many as `ragged` says.
  CropKind crop_kind;
  bool has_length;
  uint32_t crop_op_index;  // Philox counter word
  // If the steps make a spectrogram: `steps` of the waveform make the frames
  // that FramesOf says (crop.h). A hop of 0: they do not.
  int32_t frame_hop;
  int64_t frame_margin;
  int32_t crop_length;
  int32_t step_elements;
  int32_t sample_steps;
  uint64_t fill;
  // Estimated cost of one sample (the largest of a ragged field), in units of
  // about one multiply-add. For planning on the host.
  int64_t operations;
  MixProgram mix;
  ChainScratch scratch;
  int32_t num_passes;
  ChainPass passes[kMaxPasses];
  Step steps[kMaxSteps];
};

// The parts of a mixture: sample i of part d has the index begin[d] + i.
struct MixtureTable {
  int32_t num_parts;  // 0: no mixture
  // True if samples are read where their parts have them.
  bool is_in_place;
  // Bit d: rows of part d are made, and others left untouched. 0: all rows.
  uint64_t own_parts;
  int64_t begin[kMaxMixtureParts];
};
static_assert(kMaxMixtureParts <= 64);  // bits of own_parts

struct AugmentProgram {
  // Scratch memory of the chains: num_teams flags of kTeamFlagBytes, then
  // num_teams areas of team_scratch_bytes (chain_scratch.h). Null without
  // chains.
  uint8_t* scratch;
  int64_t team_scratch_bytes;
  int32_t num_teams;
  uint64_t seed;                 // Philox key
  int64_t indices_offset_bytes;  // int64 per sample; negative: not written
  MixtureTable mixture;
  // BatchTask::indices are so many entries for each row, and `samples` is set;
  // 0: they are of rows. Excludes images, staging and mixtures.
  int32_t row_entries;
  int32_t num_fields;
  FieldProgram fields[kMaxFields];
};

// Returns the estimated operations for one sample, all fields together.
inline int64_t EstimatedOperations(const AugmentProgram& program) {
  int64_t operations = 0;
  for (int i = 0; i < program.num_fields; ++i) {
    operations = SaturatingAdd(operations, program.fields[i].operations);
  }
  return operations;
}

// One batch of a launch. Rows num_samples.. of the slot are left untouched.
struct BatchTask {
  uint8_t* slot;  // device memory, 256-byte aligned
  // By row, the place of its sample in the fields' sources. Device memory,
  // unchanged until completion, as `samples`.
  const int64_t* indices;
  // By row, its sample in the dataset, where samples were copied to places of
  // their own (stage_copy.h). Null: `indices` says it.
  const int64_t* samples;
  int32_t num_samples;
  // Index in the epoch over all ranks, which seeds mixes.
  uint32_t batch_index;
  uint64_t epoch;
  // Row i draws by its sample index if draw_step is 0, else by first_draw + i *
  // draw_step; or if draw_group is not 0, by first_draw + i / draw_group *
  // draw_step + i % draw_group. That must be below 2^32 (move.h, DrawIndex).
  int64_t first_draw;
  int64_t draw_step;
  int32_t draw_group;
  // A batch may be launched in parts of num_rows rows (0: all remaining) from
  // first_row on. Parts are launched in order. The last one may write all rows
  // of the indices and of fields without steps, but not of ragged ones.
  int32_t first_row;
  int32_t num_rows;
};

// By row, the samples' indices in the dataset, which seed draws; see
// PublishedIndex.
DATASETD_HOST_DEVICE inline const int64_t* SampleIndices(
    const BatchTask& batch) {
  return batch.samples == nullptr ? batch.indices : batch.samples;
}

// Returns the part of a sample. REQUIRES: there is a mixture.
DATASETD_HOST_DEVICE inline int32_t PartOf(const MixtureTable& mixture,
                                           int64_t sample) {
  int32_t part = 0;
  int32_t end = mixture.num_parts;
  while (end - part > 1) {
    const int32_t middle = (part + end) / 2;
    if (mixture.begin[middle] <= sample) {
      part = middle;
    } else {
      end = middle;
    }
  }
  return part;
}

// Returns what the slot says of a sample: its index in the dataset; of a
// mixture the part in the upper 32 bits, and the index in the part below.
DATASETD_HOST_DEVICE inline int64_t PublishedIndex(const MixtureTable& mixture,
                                                   int64_t sample) {
  if (mixture.num_parts == 0) return sample;
  const int32_t part = PartOf(mixture, sample);
  return (int64_t{part} << 32) + (sample - mixture.begin[part]);
}

// True if the program makes this row of the batch.
DATASETD_HOST_DEVICE inline bool IsOwnRow(const MixtureTable& mixture,
                                          const BatchTask& batch, int32_t row) {
  return mixture.own_parts == 0 ||
         (mixture.own_parts >> PartOf(mixture, SampleIndices(batch)[row]) &
          1) != 0;
}

// Returns the memory of the sample at a place, of a field that is not ragged.
DATASETD_HOST_DEVICE inline const uint8_t* SampleData(
    const MixtureTable& mixture, const FieldProgram& field, int64_t place) {
  if (!mixture.is_in_place) {
    return field.source + place * field.sample_stride_bytes;
  }
  const int32_t part = PartOf(mixture, place);
  return field.part_sources[part] +
         (place - mixture.begin[part]) * field.sample_stride_bytes;
}

// The same of a ragged field, and the sample's size.
DATASETD_HOST_DEVICE inline const uint8_t* RaggedData(
    const MixtureTable& mixture, const FieldProgram& field, int64_t place,
    int32_t* height, int32_t* width) {
  const uint8_t* source = field.source;
  const RaggedSample* sample = field.ragged + place;
  if (mixture.is_in_place) {
    const int32_t part = PartOf(mixture, place);
    source = field.part_sources[part];
    sample = field.part_ragged[part] + (place - mixture.begin[part]);
  }
  *height = sample->height;
  *width = sample->width;
  return source + sample->offset_bytes;
}

// Returns the number of rows that this launch fills.
DATASETD_HOST_DEVICE inline int32_t NumRows(const BatchTask& batch) {
  const int32_t left = batch.num_samples - batch.first_row;
  if (left <= 0) return 0;
  return batch.num_rows > 0 && batch.num_rows < left ? batch.num_rows : left;
}

// True if this launch is the last part of the batch.
DATASETD_HOST_DEVICE inline bool IsLastPart(const BatchTask& batch) {
  return batch.first_row + NumRows(batch) >= batch.num_samples;
}

static_assert(std::is_trivially_copyable_v<AugmentProgram>);
static_assert(std::is_trivially_copyable_v<BatchTask>);
static_assert(sizeof(RaggedSample) == 16);
static_assert(kMaxSteps <= 32);  // bits of ChainPass::after

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_PARAMS_H_
