#include "server/pipeline/ops/pass_planner.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "cuda/kernels/chain/chain_pass.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/ops/policy.h"

namespace datasetd {
namespace {

// Useful maximum of rows kept between the two sums of a resize.
constexpr int64_t kMaxBandRows = 64;

constexpr uint32_t Bit(size_t step) { return uint32_t{1} << step; }

bool IsCertain(const Step& step) {
  return step.probability >= 1.0f && step.group_probability >= 1.0f;
}

class PassPlanner {
 public:
  PassPlanner(const FieldProgram& field, absl::Span<const Step> steps,
              absl::Span<const StepCost> costs)
      : field_(field), steps_(steps), costs_(costs), largest_(steps.size()) {
    // Maps and taps of a pass are sized for its output, which later moves may
    // enlarge, so the largest size from each step on is used.
    SampleSize later = {0, 0};
    for (size_t s = steps.size(); s-- > 0;) {
      later.height = std::max(later.height, steps[s].out_height);
      later.width = std::max(later.width, steps[s].out_width);
      largest_[s] = later;
    }
    plan_.scratch.map_elements =
        SaturatingAdd(std::max(field.in_height, later.height),
                      std::max(field.in_width, later.width));
    channels_ = field.channels;
    plan_.passes.push_back({.source = PassSource::kMoves});
  }

  PassPlan Plan() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      AddStep(s);
      plan_.passes.back().end_step = static_cast<uint8_t>(s + 1);
      channels_ = steps_[s].out_channels;
    }
    if (field_.mix.kind != MixKind::kNone) {
      const bool is_empty = steps_.empty();
      plan_.scratch.partner_elements = SaturatingProduct(
          is_empty ? field_.in_height : steps_.back().out_height,
          is_empty ? field_.in_width : steps_.back().out_width, channels_);
    }
    return plan_;
  }

 private:
  void AddStep(size_t s) {
    const Step& step = steps_[s];
    switch (step.kind) {
      case StepKind::kMove:
        // Moves follow moves and a resize in their pass.
        if (unmoved_ == 0) return;
        Begin(s, {.after = unmoved_});
        if (IsCertain(step) && is_unmoved_certain_) Settle();
        return;
      case StepKind::kResize:
        if (s == 0) {
          plan_.passes.back().source = PassSource::kResize;
        } else {
          Begin(s, {.source = PassSource::kResize, .after = Bit(s) - 1});
        }
        if (IsCertain(step)) Settle();
        AddResize(s);
        return;
#define DATASETD_ROW(Name)                      \
  case StepKind::k##Name:                       \
    AddChoice(s, ParamsAs<Name##Params>(step)); \
    break;
        DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      case StepKind::kGaussianBlur:
        Begin(s, {.source = PassSource::kBlurX, .after = Bit(s)});
        plan_.passes.back().end_step = static_cast<uint8_t>(s);
        Begin(s, {.source = PassSource::kBlurY, .after = Bit(s)});
        break;
      default:
        if (IsStatistic(step.kind) ||
            SourceOf(step.kind) != PassSource::kMoves) {
          Begin(s, {.source = SourceOf(step.kind), .after = Bit(s)});
        }
        break;
    }
    unmoved_ |= Bit(s);
    is_unmoved_certain_ =
        is_unmoved_certain_ || (IsCertain(step) && !IsChoice(step.kind));
  }

  template <typename Params>
  void AddChoice(size_t s, const Params& params) {
    if constexpr (requires { MayBeginPass(params); }) {
      if (!MayBeginPass(params)) return;
    }
    bool shares_pass = false;
    if constexpr (requires { SharesPass(params); }) {
      shares_pass = SharesPass(params);
    }
    Begin(s, {.is_drawn = true, .after = Bit(s)}, shares_pass);
  }

  // `shares_pass`: an earlier step may begin the pass instead.
  void Begin(size_t s, ChainPass pass, bool shares_pass = false) {
    const Step& step = steps_[s];
    pass.first_step = static_cast<uint8_t>(s);
    // The pass before this one writes the image to scratch memory.
    const int64_t image_elements =
        SaturatingProduct(step.in_height, step.in_width, channels_);
    if (!shares_pass) ++num_images_;
    for (int i = 0; i < std::min(num_images_, 2); ++i) {
      int64_t& elements = plan_.scratch.image_elements[i];
      elements = std::max(elements, image_elements);
    }
    plan_.passes.push_back(pass);
  }

  // No step before this one is in its pass.
  void Settle() {
    unmoved_ = 0;
    is_unmoved_certain_ = false;
  }

  void AddResize(size_t s) {
    const Step& step = steps_[s];
    const int64_t num_taps_y = costs_[s].num_taps_y;
    const int64_t line =
        SaturatingMultiply(LineStride(step.in_width), channels_);
    const int64_t row =
        std::max(SaturatingMultiply(largest_[s].width, channels_), line);
    ChainScratch& scratch = plan_.scratch;
    scratch.row_elements = std::max(
        scratch.row_elements,
        SaturatingMultiply(
            row, std::min<int64_t>(step.in_height,
                                   std::max(num_taps_y, kMaxBandRows))));
    scratch.line_elements = std::max(scratch.line_elements, line);
    scratch.tap_elements = std::max(
        scratch.tap_elements,
        SaturatingAdd(
            SaturatingMultiply(largest_[s].height, num_taps_y),
            SaturatingMultiply(largest_[s].width, costs_[s].num_taps_x)));
  }

  const FieldProgram& field_;
  const absl::Span<const Step> steps_;
  const absl::Span<const StepCost> costs_;
  std::vector<SampleSize> largest_;
  PassPlan plan_ = {};
  int64_t channels_;  // before the current step
  // Largest number of images that passes have written to scratch memory.
  int num_images_ = 0;
  // The steps that a move cannot follow in their pass, and whether one of them
  // is always applied. Steps of passes that always ended are left out.
  uint32_t unmoved_ = 0;
  bool is_unmoved_certain_ = false;
};

}  // namespace

PassPlan PlanPasses(const FieldProgram& field, absl::Span<const Step> steps,
                    absl::Span<const StepCost> costs) {
  return PassPlanner(field, steps, costs).Plan();
}

}  // namespace datasetd
