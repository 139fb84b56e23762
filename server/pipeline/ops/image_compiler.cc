#include "server/pipeline/ops/image_compiler.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "proto/same_values.h"
#include "server/pipeline/ops/pass_planner.h"

namespace datasetd {
DATASETD_SAME_VALUE(Dtype::kUint8, DTYPE_UINT8);
DATASETD_SAME_VALUE(Dtype::kInt16, DTYPE_INT16);
DATASETD_SAME_VALUE(Dtype::kInt32, DTYPE_INT32);
DATASETD_SAME_VALUE(Dtype::kInt64, DTYPE_INT64);
DATASETD_SAME_VALUE(Dtype::kFloat16, DTYPE_FLOAT16);
DATASETD_SAME_VALUE(Dtype::kBfloat16, DTYPE_BFLOAT16);
DATASETD_SAME_VALUE(Dtype::kFloat32, DTYPE_FLOAT32);
DATASETD_SAME_VALUE(Dtype::kFloat64, DTYPE_FLOAT64);
DATASETD_SAME_VALUE(Dtype::kInt8, DTYPE_INT8);
DATASETD_SAME_VALUE(Dtype::kUint16, DTYPE_UINT16);
DATASETD_SAME_VALUE(Dtype::kUint32, DTYPE_UINT32);
DATASETD_SAME_VALUE(PaddingMode::kConstant, PADDING_MODE_CONSTANT);
DATASETD_SAME_VALUE(PaddingMode::kEdge, PADDING_MODE_EDGE);
DATASETD_SAME_VALUE(PaddingMode::kReflect, PADDING_MODE_REFLECT);
DATASETD_SAME_VALUE(PaddingMode::kSymmetric, PADDING_MODE_SYMMETRIC);
DATASETD_SAME_VALUE(InterpolationMode::kNearest, INTERPOLATION_MODE_NEAREST);
DATASETD_SAME_VALUE(InterpolationMode::kNearestExact,
                    INTERPOLATION_MODE_NEAREST_EXACT);
DATASETD_SAME_VALUE(InterpolationMode::kBilinear, INTERPOLATION_MODE_BILINEAR);
DATASETD_SAME_VALUE(InterpolationMode::kBicubic, INTERPOLATION_MODE_BICUBIC);

Dtype ToDtypeOf(const v1::ToDtype& op) {
  return static_cast<Dtype>(op.dtype());
}

PaddingMode ToPaddingMode(v1::PaddingMode mode) {
  return static_cast<PaddingMode>(mode);
}

InterpolationMode ToInterpolation(v1::InterpolationMode mode) {
  return static_cast<InterpolationMode>(mode);
}

bool FitsInSample(int64_t height, int64_t width, int64_t channels) {
  return height <= kMaxElements && width <= kMaxElements &&
         SaturatingProduct(height, width, channels) <= kMaxElements;
}

ImageCompiler::ImageCompiler(FieldProgram* program, bool is_mask,
                             std::vector<SampleSize> sizes,
                             const TransformLimits& limits)
    : program_(*program),
      is_mask_(is_mask),
      limits_(limits),
      height_(program->in_height),
      width_(program->in_width),
      channels_(program->channels),
      dtype_(program->in_dtype),
      sizes_(std::move(sizes)) {}

absl::Status ImageCompiler::BeginGroup(double p) {
  if (!group_.empty()) {
    return Invalid(
        "a RandomApply inside a RandomApply is not supported: take the inner "
        "one out of it");
  }
  group_.push_back({op_index_, p, steps_.size(), sizes_, height_, width_,
                    channels_, dtype_});
  return absl::OkStatus();
}

absl::Status ImageCompiler::EndGroup() {
  const Group group = std::move(group_.back());
  group_.pop_back();
  if (!std::equal(sizes_.begin(), sizes_.end(), group.sizes.begin(),
                  group.sizes.end(),
                  [](const SampleSize& a, const SampleSize& b) {
                    return a.height == b.height && a.width == b.width;
                  })) {
    return Invalid(
        "its ops change the sizes of the samples: applied or not, they must be "
        "the same");
  }
  if (height_ != group.height || width_ != group.width) {
    return Invalid(absl::StrCat("its ops make ", SizeText(height_, width_),
                                " of an image of ",
                                SizeText(group.height, group.width),
                                ": applied or not, the size must be the same"));
  }
  if (channels_ != group.channels || dtype_ != group.dtype) {
    return Invalid(
        "its ops change dtype or channels: applied or not, they must be the "
        "same; put ToDtype and Grayscale outside");
  }
  if (group.p == 0.0) {
    steps_.resize(group.first_step);
    costs_.resize(group.first_step);
  }
  return absl::OkStatus();
}

absl::Status ImageCompiler::Append(Step step, double p, int64_t out_height,
                                   int64_t out_width, int out_channels) {
  if (p == 0.0) return absl::OkStatus();
  if (steps_.size() == static_cast<size_t>(kMaxSteps)) {
    return Invalid(absl::StrCat("too many steps: a field can have ", kMaxSteps,
                                "; a crop with padding is two, a ColorJitter "
                                "one per part, and a policy "
                                "one per drawn op"));
  }
  step.op_index = op_index_;
  step.position = position_;
  step.probability = static_cast<float>(p);
  step.group_probability = 1.0f;
  if (!group_.empty()) {
    step.group_op_index = group_.back().op_index;
    step.group_probability = static_cast<float>(group_.back().p);
  }
  step.in_height = Narrow<int32_t>(height_);
  step.in_width = Narrow<int32_t>(width_);
  step.out_channels = out_channels;
  DATASETD_RETURN_IF_ERROR(FollowSizes(step, out_height, out_width));
  step.out_height = Narrow<int32_t>(height_);
  step.out_width = Narrow<int32_t>(width_);
  channels_ = out_channels;
  steps_.push_back(step);
  return CheckLimits();
}

absl::Status ImageCompiler::FollowSizes(Step& step, int64_t out_height,
                                        int64_t out_width) {
  const int in_channels = channels_;
  DATASETD_RETURN_IF_ERROR(CheckLargest(out_height, out_width));
  StepCost& cost = costs_.emplace_back();
  step.out_height = Narrow<int32_t>(out_height);
  step.out_width = Narrow<int32_t>(out_width);
  if (!is_ragged()) {
    step.size_rule = SizeRule::kFixed;
    cost = CostOf(step, {step.in_height, step.in_width},
                  {step.out_height, step.out_width}, in_channels);
    height_ = out_height;
    width_ = out_width;
    return absl::OkStatus();
  }
  height_ = width_ = 0;
  for (SampleSize& size : sizes_) {
    const SampleSize out = SizeAfter(step, size);
    if (out.height < 1 || out.width < 1 ||
        !FitsInSample(out.height, out.width, step.out_channels) ||
        std::max(out.height, out.width) > limits_.max_side) {
      return Invalid(absl::StrCat(
          "a sample of ", SizeText(size.height, size.width), " would become ",
          SizeText(out.height, out.width), " with ", step.out_channels,
          " channels; it can have 1 to ", kMaxElements,
          " elements, and a side 1 to ", limits_.max_side, " pixels"));
    }
    cost.RaiseTo(CostOf(step, size, out, in_channels));
    size = out;
    height_ = std::max<int64_t>(height_, out.height);
    width_ = std::max<int64_t>(width_, out.width);
  }
  const bool fixes = step.size_rule == SizeRule::kTo ||
                     step.size_rule == SizeRule::kCenter ||
                     step.size_rule == SizeRule::kWhole;
  if (fixes) sizes_.clear();
  return absl::OkStatus();
}

absl::Status ImageCompiler::CheckRaggedChange(
    std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers) {
    if (number >= -kMaxRaggedChange && number <= kMaxRaggedChange) continue;
    return Invalid(absl::StrCat("its size or place is ", number,
                                ": where samples differ in size it "
                                "must be within ",
                                -kMaxRaggedChange, "..", kMaxRaggedChange));
  }
  return absl::OkStatus();
}

absl::Status ImageCompiler::AddValueOp(ValueOp op) {
  op.position = position_;
  return Add(StepKind::kValue, op);
}

absl::Status ImageCompiler::AddMove(Move move, int64_t out_height,
                                    int64_t out_width,
                                    const SizeChange& change) {
  DATASETD_RETURN_IF_ERROR(CheckLargest(out_height, out_width));
  move.op_index = op_index_;
  move.position = position_;
  if (move.kind != MoveKind::kPad) move.padding_mode = PaddingMode::kConstant;
  move.in_height = Narrow<int32_t>(height_);
  move.in_width = Narrow<int32_t>(width_);
  move.out_height = Narrow<int32_t>(out_height);
  move.out_width = Narrow<int32_t>(out_width);
  return Add(StepKind::kMove, move, 1.0, out_height, out_width, channels_,
             change);
}

absl::Status ImageCompiler::SetMix(MixKind kind, double alpha,
                                   bool per_sample) {
  if (!group_.empty()) {
    return Invalid(
        "it mixes whole batches, and a RandomApply is drawn per sample: put it "
        "after the RandomApply");
  }
  MixProgram& mix = program_.mix;
  mix.kind = kind;
  mix.per_sample = per_sample;
  mix.position = position_;
  mix.op_index = op_index_;
  mix.labels_field = -1;
  mix.alpha = alpha;
  return CheckLimits();
}

absl::Status ImageCompiler::CheckSize(int64_t height, int64_t width) const {
  if (height < 1 || width < 1) {
    return Invalid(absl::StrCat("the size is ", SizeText(height, width),
                                ": height and width must be at least 1"));
  }
  return CheckLargest(height, width);
}

absl::Status ImageCompiler::CheckLargest(int64_t height, int64_t width) const {
  if (!FitsInSample(height, width, channels_)) {
    return Invalid(absl::StrCat("the size ", SizeText(height, width), " with ",
                                channels_, " channels is more than ",
                                kMaxElements, " elements"));
  }
  if (std::max(height, width) > limits_.max_side) {
    return Invalid(absl::StrCat(
        "the image of ", SizeText(height, width), " has a side of more than ",
        limits_.max_side,
        " pixels, which is transform_limits.max_side: make it smaller"));
  }
  return absl::OkStatus();
}

absl::Status ImageCompiler::CheckColour() const {
  if (channels_ != 1 && channels_ != 3) {
    return Invalid(absl::StrCat("the image has ", channels_,
                                " channels: the op is for 1 or 3"));
  }
  return absl::OkStatus();
}

// True if the steps consist of moves and value ops, and fit in the program.
bool ImageCompiler::IsMovesOnly() const {
  if (is_mixed()) return false;
  if (program_.in_dtype != Dtype::kUint8 &&
      program_.in_dtype != Dtype::kFloat32) {
    return false;
  }
  int num_moves = 0;
  int num_value_ops = 0;
  for (const Step& step : steps_) {
    if (step.group_probability < 1.0f) return false;
    if (step.size_rule != SizeRule::kFixed) return false;
    if (step.kind == StepKind::kMove) {
      ++num_moves;
    } else if (step.kind == StepKind::kValue) {
      ++num_value_ops;
    } else {
      return false;
    }
  }
  return num_moves <= kMaxMoves && num_value_ops <= kMaxValueOps;
}

void ImageCompiler::Finish() {
  program_.out_height = Narrow<int32_t>(height_);
  program_.out_width = Narrow<int32_t>(width_);
  program_.out_channels = channels_;
  program_.out_dtype = dtype_;
  program_.operations = Operations();
  program_.num_sized_steps = Narrow<int32_t>(std::count_if(
      steps_.begin(), steps_.end(),
      [](const Step& step) { return step.size_rule != SizeRule::kFixed; }));
  if (IsMovesOnly()) {
    MakeMoves();
  } else {
    MakeChain();
  }
}

void ImageCompiler::MakeMoves() {
  for (const Step& step : steps_) {
    if (step.kind == StepKind::kMove) {
      program_.moves[program_.num_moves++] = ParamsAs<Move>(step);
      continue;
    }
    const ValueOp& op = ParamsAs<ValueOp>(step);
    program_.value_ops[program_.num_value_ops++] = op;
    // Apply the value op to the fills of the moves before it.
    for (int i = 0; i < program_.num_moves; ++i) {
      Move& move = program_.moves[i];
      if (move.kind != MoveKind::kPad ||
          move.padding_mode != PaddingMode::kConstant) {
        continue;
      }
      for (int c = 0; c < program_.channels; ++c) {
        move.fill[c] = op.kind == ValueOpKind::kDivide
                           ? move.fill[c] / op.divisor
                           : (move.fill[c] - op.mean[c]) / op.std[c];
      }
    }
  }
}

void ImageCompiler::MakeChain() {
  if (steps_.empty()) {
    Step identity = {};
    identity.kind = StepKind::kIdentity;
    identity.probability = identity.group_probability = 1.0f;
    identity.in_height = identity.out_height = program_.in_height;
    identity.in_width = identity.out_width = program_.in_width;
    identity.out_channels = program_.channels;
    steps_.push_back(identity);
    costs_.emplace_back();
  }
  program_.num_steps = Narrow<int32_t>(steps_.size());
  std::copy(steps_.begin(), steps_.end(), program_.steps);
  const PassPlan plan = PlanPasses(program_, steps_, costs_);
  program_.num_passes = Narrow<int32_t>(plan.passes.size());
  std::copy(plan.passes.begin(), plan.passes.end(), program_.passes);
  program_.scratch = plan.scratch;
}

int64_t ImageCompiler::Operations() const {
  // At least every output element is written.
  int64_t operations = SaturatingProduct(height_, width_, channels_);
  for (const StepCost& cost : costs_) {
    operations = SaturatingAdd(operations, cost.operations);
  }
  // The partner sample is computed, too.
  return is_mixed() ? SaturatingMultiply(operations, 2) : operations;
}

absl::Status ImageCompiler::CheckLimits() const {
  const int64_t operations = Operations();
  if (operations > limits_.max_operations) {
    return Invalid(
        absl::StrCat("with it a sample takes about ", operations,
                     " operations, and transform_limits.max_operations is ",
                     limits_.max_operations,
                     ": crop or resize the image before it, or use fewer ops"));
  }
  if (IsMovesOnly()) return absl::OkStatus();
  const int64_t scratch_bytes =
      TeamScratchBytes(PlanPasses(program_, steps_, costs_).scratch);
  if (scratch_bytes > limits_.max_scratch_bytes) {
    return Invalid(absl::StrCat(
        "with it a sample takes ", scratch_bytes,
        " bytes of memory between ops, and transform_limits.max_scratch_mib "
        "is ",
        limits_.max_scratch_bytes >> 20,
        ": crop or resize the image before it"));
  }
  return absl::OkStatus();
}

}  // namespace datasetd
