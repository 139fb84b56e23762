#include "server/pipeline/explain.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/ops/draw_step.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/crop.h"

namespace datasetd {
namespace {

using Parameters = std::vector<std::pair<std::string, std::vector<double>>>;

// Takes what VisitDrawn names.
class Describer {
 public:
  explicit Describer(Parameters* parameters) : parameters_(*parameters) {}

  template <typename... Values>
  void operator()(const char* name, Values... values) const {
    Set(name, {static_cast<double>(values)...});
  }
  void List(const char* name, const float* values, int count) const {
    Set(name, std::vector<double>(values, values + count));
  }

 private:
  void Set(const char* name, std::vector<double> values) const {
    for (auto& [present, old] : parameters_) {
      if (present != name) continue;
      old = std::move(values);
      return;
    }
    parameters_.emplace_back(name, std::move(values));
  }

  Parameters& parameters_;
};

// Returns what the op's VisitDrawn names; nothing without one.
template <typename Draw>
Parameters Describe(const Draw& draw, const Step& step, const DrawKey& key) {
  Parameters parameters;
  const Describer visit(&parameters);
  if constexpr (requires { VisitDrawn(draw, visit); }) {
    VisitDrawn(draw, visit);
  } else if constexpr (requires { VisitDrawn(draw, step, key, visit); }) {
    VisitDrawn(draw, step, key, visit);
  }
  return parameters;
}

// Returns the name of an op, or of a choice that no step was drawn of.
template <typename Params>
const char* NameOfRow(const char* row, const Params& params) {
  if constexpr (requires { NameOf(params); }) return NameOf(params);
  return row;
}

// Adds what the choice alone knows of the op that it drew.
template <typename Params>
void DescribeChoice(const Params& params, const Step& step, const DrawKey& key,
                    Parameters* parameters) {
  const Describer visit(parameters);
  if constexpr (requires { VisitChosen(params, step, key, visit); }) {
    VisitChosen(params, step, key, visit);
  }
}

// ---- Other steps ----

void DescribeMove(const Move& move, const MoveDraw& draw, OpDraw* to) {
  const AxisMove& y = draw.axis[static_cast<int>(Axis::kY)];
  const AxisMove& x = draw.axis[static_cast<int>(Axis::kX)];
  switch (move.kind) {
    case MoveKind::kCrop:
    case MoveKind::kRandomCrop:
      to->name = "Crop";
      to->parameters = {{"top", {1.0 * y.origin}},
                        {"left", {1.0 * x.origin}},
                        {"height", {1.0 * move.out_height}},
                        {"width", {1.0 * move.out_width}}};
      break;
    case MoveKind::kPad:
      to->name = "Pad";
      to->parameters = {
          {"padding",
           {1.0 * move.left, 1.0 * move.top,
            1.0 * (move.out_width - move.in_width - move.left),
            1.0 * (move.out_height - move.in_height - move.top)}}};
      break;
    case MoveKind::kVerticalFlip:
      to->name = "VerticalFlip";
      to->is_applied = y.is_mirrored;
      break;
    case MoveKind::kHorizontalFlip:
    case MoveKind::kAlternatingFlip:
      to->name = "HorizontalFlip";
      to->is_applied = x.is_mirrored;
      break;
  }
}

void DescribeValueOp(const ValueOp& op, int num_channels, OpDraw* to) {
  if (op.kind == ValueOpKind::kDivide) {
    to->name = "ToDtype";
    to->parameters = {{"divisor", {op.divisor}}};
    return;
  }
  to->name = "Normalize";
  to->parameters = {
      {"mean", std::vector<double>(op.mean, op.mean + num_channels)},
      {"std", std::vector<double>(op.std, op.std + num_channels)}};
}

void DescribeStep(const Step& step, const StepDraw& drawn, const DrawKey& key,
                  OpDraw* to) {
  switch (drawn.kind) {
    case StepKind::kMove:
      if (drawn.is_applied) {
        DescribeMove(ParamsAs<Move>(step), drawn.As<MoveDraw>(), to);
        break;
      }
      // Describes the name only.
      DescribeMove(ParamsAs<Move>(step), {}, to);
      to->is_applied = false;
      break;
    case StepKind::kValue:
      DescribeValueOp(ParamsAs<ValueOp>(step), step.out_channels, to);
      break;
#define DATASETD_ROW(Name)                                     \
  case StepKind::k##Name:                                      \
    to->name = NameOfRow(#Name, ParamsAs<Name##Params>(step)); \
    break;
      DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name)                                          \
  case StepKind::k##Name:                                           \
    to->name = NameOfRow(#Name, ParamsAs<Name##Params>(step));      \
    if (drawn.is_applied) {                                         \
      to->parameters = Describe(drawn.As<Name##Draw>(), step, key); \
    }                                                               \
    break;
      DATASETD_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    case StepKind::kIdentity:
      break;
  }
  switch (step.kind) {
#define DATASETD_ROW(Name)                                                    \
  case StepKind::k##Name:                                                     \
    DescribeChoice(ParamsAs<Name##Params>(step), step, key, &to->parameters); \
    break;
    DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      break;
  }
  if (!to->is_applied) to->parameters.clear();
}

// True for a pad of zero pixels: a step for other samples of a ragged field.
bool IsEmptyPad(const Step& step) {
  return step.kind == StepKind::kMove &&
         ParamsAs<Move>(step).kind == MoveKind::kPad &&
         step.in_height == step.out_height && step.in_width == step.out_width &&
         step.in_height > 0;
}

// The steps of a field; moves and value ops are converted to steps.
std::vector<Step> StepsOf(const FieldProgram& field) {
  if (field.num_steps > 0) {
    return std::vector<Step>(field.steps, field.steps + field.num_steps);
  }
  std::vector<Step> steps;
  const auto add = [&](StepKind kind, int position, uint32_t op_index) {
    Step step = {};
    step.kind = kind;
    step.position = static_cast<uint16_t>(position);
    step.op_index = op_index;
    step.probability = step.group_probability = 1.0f;
    step.out_channels = field.channels;
    steps.push_back(step);
    return &steps.back();
  };
  for (int i = 0; i < field.num_moves; ++i) {
    const Move& move = field.moves[i];
    SetParams(move, add(StepKind::kMove, move.position, move.op_index));
  }
  for (int i = 0; i < field.num_value_ops; ++i) {
    const ValueOp& op = field.value_ops[i];
    SetParams(op, add(StepKind::kValue, op.position, 0));
  }
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<OpDraw>> ExplainSample(const AugmentProgram& program,
                                                  uint64_t epoch,
                                                  int64_t sample) {
  constexpr uint64_t kMaxWord = 0xFFFFFFFFu;
  if (epoch > kMaxWord || sample < 0 ||
      static_cast<uint64_t>(sample) > kMaxWord) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch ", epoch, ", sample ", sample,
                     ": both must be within 0..", kMaxWord));
  }
  std::vector<OpDraw> draws;
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    const RowLength length =
        LengthOf(field, std::min(field.sample_steps, field.crop_length));
    for (const Step& step : StepsOf(field)) {
      StepDraw drawn = {};
      if (field.is_image) {
        DrawStep(step, program.seed, epoch, sample, &drawn);
      } else {
        DrawSequenceStep(step, length, program.seed, epoch, sample, &drawn);
      }
      if (drawn.kind == StepKind::kIdentity || IsEmptyPad(step)) continue;
      OpDraw draw;
      draw.field = f;
      draw.position = step.position;
      draw.is_applied = drawn.is_applied;
      DescribeStep(step, drawn, {program.seed, epoch, sample, step.op_index},
                   &draw);
      draws.push_back(std::move(draw));
    }
    const MixProgram& mix = field.mix;
    if (mix.kind != MixKind::kNone) {
      OpDraw draw;
      draw.field = f;
      draw.position = mix.position;
      draw.name = mix.kind == MixKind::kMixUp ? "MixUp" : "CutMix";
      draw.parameters = {{"alpha", {mix.alpha}}};
      draws.push_back(std::move(draw));
    }
  }
  return draws;
}

void GiveSize(const FieldProgram& field, ImageSize size, FieldProgram* sized) {
  const SampleSize sample = {static_cast<int32_t>(size.height),
                             static_cast<int32_t>(size.width)};
  for (int s = 0; s < field.num_sized_steps; ++s) {
    SizeStep(field, s, sample, &sized->steps[s]);
  }
}

}  // namespace datasetd
