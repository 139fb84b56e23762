// Runs one sample through a chain of steps on a team of ranks: the threads of a
// CUDA block, or one host thread.
//
// The executor follows the passes that DrawPasses lists. A pass reads the
// sample or an image in scratch memory, and writes scratch memory, or rounded
// values to the slot. So Resize, flips, ToDtype and Normalize are one pass. A
// statistic is accumulated while the image before its op is written. Ranks
// share blocks of Team::kLanes pixels of a row. Shared sums are integers, so
// the result does not depend on the number of ranks.
//
// A mix (ops/mix.h) first computes the used part of the row's partner, and
// blends it in when the row's own image is stored.
//
// A Team has
//   kLanes, kGroup         pixels per block, all of one row, and per loop of
//                          vectors; kGroup divides kLanes
//   kRowElements           elements of the rows buffered between the two sums
//                          of a resize
//   kTakesRowsInTurn       if true, a row keeps its image for the next row,
//                          whose partner it is
//   Atomics                as in ops/atomics.h
//   Vector                 HostVector (host_team.h), if the team has lanes
//   rank(), size(), Sync()
//   GoesOn()               false: skip the rest (host_checkpoint.h)
// Everything is a template over the team, as in chain_lanes.h.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_mix.h"
#include "cuda/kernels/chain/chain_pass.h"
#include "cuda/kernels/chain/chain_resize.h"
#include "cuda/kernels/chain/chain_resizer.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_sources.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/chain_windows.h"
#include "cuda/kernels/chain/prefetcher.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/op_rows.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

template <typename Team>
class ChainExecutor {
 public:
  // All arguments must outlive this. `state` and `memory` belong to the team.
  DATASETD_HOST_DEVICE ChainExecutor(const Team& team,
                                     const AugmentProgram& program,
                                     const FieldProgram& field,
                                     const ChainMemory& memory,
                                     ChainState* state)
      : team_(team),
        program_(program),
        field_(field),
        memory_(memory),
        state_(*state),
        resizer_(team, field.scratch, memory_, *state) {}

  // Runs row `index` of the batch. All ranks call it. Returns false if the work
  // was stopped.
  DATASETD_HOST_DEVICE bool Run(const BatchTask& batch, int32_t index) {
    const int32_t partner = PartnerRow(batch, index);
    bool has_partner = false;
    if (IsMixed()) {
      if (team_.rank() == 0) {
        state_.mix = DrawMix(field_.mix, program_.seed, batch, index,
                             field_.out_height, field_.out_width);
      }
      team_.Sync();
      has_partner = HasPartner(state_.mix) && kept_ != batch.indices + partner;
      if (field_.mix.labels_field >= 0) {
        WriteMixedLabels(team_, state_.mix,
                         program_.fields[field_.mix.labels_field], batch, index,
                         partner);
      }
    }
    if constexpr (Team::kTakesRowsInTurn) {
      if (index + 1 < batch.num_samples) {
        const ChainImage next = ResidentImage(batch.indices[index + 1]);
        next_source_.Begin(next.data, int64_t{next.height} * next.row_stride *
                                          DtypeSizeBytes(next.dtype));
      }
    }
    const int64_t sample_bytes = int64_t{field_.out_height} * field_.out_width *
                                 field_.out_channels *
                                 DtypeSizeBytes(field_.out_dtype);
    uint8_t* const to = batch.slot + field_.offset_bytes + index * sample_bytes;
    // A single call site, so that RunPasses is compiled once.
    for (bool is_partner = has_partner;; is_partner = false) {
      RunPasses(batch, is_partner ? partner : index,
                is_partner ? Target::kPartner : Target::kSlot,
                is_partner ? reinterpret_cast<uint8_t*>(memory_.partner) : to);
      if (!is_partner || is_left_out_) break;
    }
    if (Team::kTakesRowsInTurn) kept_ = batch.indices + index;
    return !is_left_out_;
  }

 private:
  // kPartner is like kScratch, except that pixels unused by the mix are
  // skipped.
  enum class Target : uint8_t { kScratch, kPartner, kSlot };

  DATASETD_HOST_DEVICE bool IsMixed() const {
    return field_.mix.kind != MixKind::kNone;
  }

  // Runs all passes on the sample of row `index`; the last one writes `to`.
  DATASETD_HOST_DEVICE void RunPasses(const BatchTask& batch, int32_t index,
                                      Target target, uint8_t* to) {
    const int64_t sample = batch.indices[index];
    const int64_t draw_index = DrawIndex(batch, index);
    key_ = {program_.seed, batch.epoch, draw_index, 0};
    image_ = ResidentImage(sample);
    for (int s = team_.rank(); s < field_.num_steps; s += team_.size()) {
      const Step* step = &field_.steps[s];
      Step sized;
      if (s < field_.num_sized_steps) {
        sized = SizedStep(field_, s, {image_.height, image_.width});
        step = &sized;
      }
      DrawStep(*step, program_.seed, batch.epoch, draw_index, &state_.drawn[s]);
    }
    team_.Sync();
    if (team_.rank() == 0) {
      DrawPasses(field_, image_.height, image_.width, &state_);
    }
    team_.Sync();
    const int last = state_.num_passes - 1;
    for (int p = 0; p <= last && !is_left_out_; ++p) {
      pass_ = &state_.passes[p];
      float* const scratch = memory_.image[p % 2];
      // A single call site, so that RunPass is compiled once.
      RunPass(p == last ? target : Target::kScratch,
              p == last ? to : reinterpret_cast<uint8_t*>(scratch));
      SetScratchImage(scratch);
    }
  }

  DATASETD_HOST_DEVICE ChainImage ResidentImage(int64_t sample) const {
    ChainImage image;
    image.data = field_.source + sample * field_.sample_stride_bytes;
    image.dtype = field_.in_dtype;
    image.height = field_.in_height;
    image.width = field_.in_width;
    image.channels = field_.channels;
    image.channel_stride = 1;
    if (field_.ragged != nullptr) {
      const RaggedSample& place = field_.ragged[sample];
      image.data = field_.source + place.offset_bytes;
      image.height = place.height;
      image.width = place.width;
    }
    image.row_stride = image.width * field_.channels;
    image.pixel_stride = field_.channels;
    image.is_scratch = false;
    return image;
  }

  // Makes the pass's image, at `data` in scratch memory, the next input.
  DATASETD_HOST_DEVICE void SetScratchImage(const float* data) {
    image_.data = reinterpret_cast<const uint8_t*>(data);
    image_.dtype = Dtype::kFloat32;
    image_.height = pass_->height;
    image_.width = pass_->width;
    image_.channels = pass_->channels;
    image_.channel_stride = int64_t{image_.height} * image_.width;
    image_.row_stride = image_.width;
    image_.pixel_stride = 1;
    image_.is_scratch = true;
  }

  // ---- Statistics ----

  DATASETD_HOST_DEVICE bool HasStatistic() const {
    return pass_->statistic_step != kNoStep;
  }
  // REQUIRES: HasStatistic().
  DATASETD_HOST_DEVICE StepDraw& StatisticDraw() const {
    return state_.drawn[pass_->statistic_step];
  }

  DATASETD_HOST_DEVICE void InitStatistic() {
    const StepDraw& drawn = StatisticDraw();
    switch (drawn.kind) {
#define DATASETD_ROW(Name)                                           \
  case StepKind::k##Name:                                            \
    Init##Name(StatisticAs<Name##Statistic>(drawn.statistic_index)); \
    break;
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      default:
        break;
    }
  }

  DATASETD_HOST_DEVICE void FinishStatistic() {
    StepDraw& drawn = StatisticDraw();
    switch (drawn.kind) {
#define DATASETD_ROW(Name)                                            \
  case StepKind::k##Name:                                             \
    Finish##Name(pass_->channels, pass_->height, pass_->width,        \
                 StatisticAs<Name##Statistic>(drawn.statistic_index), \
                 &drawn.template As<Name##Draw>());                   \
    break;
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      default:
        break;
    }
  }

  template <typename Statistic>
  DATASETD_HOST_DEVICE Statistic* StatisticAs(int index) {
    return reinterpret_cast<Statistic*>(state_.statistic[index]);
  }

  // ---- Passes ----

  // Runs pass_ on image_ and writes `to`.
  DATASETD_HOST_DEVICE void RunPass(Target target, uint8_t* to) {
    const int32_t height = pass_->height;
    const int32_t width = pass_->width;
    const bool is_resize = pass_->source == PassSource::kResize;
    const bool has_statistic = HasStatistic();
    DATASETD_CHECK_BOUND(target != Target::kScratch ||
                         int64_t{height} * width * pass_->channels <=
                             pass_->max_elements);
    if (has_statistic && team_.rank() == 0) InitStatistic();
    PrepareMaps();
    PrepareScale();
    team_.Sync();
    if (is_resize) resizer_.FinishTaps();
    const int end_op = EndOfOps();
    const bool is_scaled = end_op < pass_->end_op;
    Partials partials;
    partials.Init();
    const bool is_partner = target == Target::kPartner;
    const bool is_mixed = target == Target::kSlot && IsMixed();
    const int32_t end = is_partner ? state_.mix.bottom : height;
    const int32_t band = is_resize ? resizer_.BandRows() : height;
    // Ranks take the blocks of a band in turn.
    const int32_t blocks = (width + Team::kLanes - 1) / Team::kLanes;
    const int32_t first_row = team_.rank() / blocks;
    const int32_t first_block = team_.rank() - first_row * blocks;
    const int32_t step_rows = team_.size() / blocks;
    const int32_t step_blocks = team_.size() - step_rows * blocks;
    for (int32_t first = is_partner ? state_.mix.top : 0; first < end;
         first += band) {
      const int32_t rows = end - first < band ? end - first : band;
      if (is_resize) {
        if (!resizer_.MakeRows(first, rows)) {
          is_left_out_ = true;
          return;
        }
        if constexpr (Team::kLanes > 1) {
          if (WriteRows(target, to, first, rows, end_op,
                        is_mixed || has_statistic)) {
            if (is_left_out_) return;
            continue;
          }
        }
      }
      int32_t row = first_row;
      int32_t block = first_block;
      while (row < rows) {
        if (!team_.GoesOn()) {
          is_left_out_ = true;
          return;
        }
        Lanes<Team> lanes;
        lanes.y = first + row;
        lanes.first_x = block * Team::kLanes;
        row += step_rows;
        block += step_blocks;
        if (block >= blocks) {
          block -= blocks;
          ++row;
        }
        if (image_.is_scratch && lanes.first_x == 0) next_source_.AskForSome();
        const int32_t left = width - lanes.first_x;
        lanes.count =
            Team::kLanes > 1 && left < Team::kLanes ? left : Team::kLanes;
        if (is_partner && !IsMixedIn(state_.mix, lanes)) continue;
        lanes.channels = image_.channels;
        Make(&lanes);
        for (int s = pass_->first_op; s < end_op; ++s) {
          if (state_.drawn[s].is_applied) {
            ApplyStep(field_.steps[s], state_.drawn[s], state_, key_, &lanes);
          }
        }
        if (is_scaled) ScaleLanes(state_.scale, &lanes);
        if (has_statistic) Accumulate(lanes, &partials);
        if (is_mixed) {
          MixLanes(field_.mix.kind, state_.mix, memory_.partner, height, width,
                   &lanes);
        }
        Store(target, to, lanes);
      }
      // The next band overwrites these rows.
      if (is_resize && first + band < end) team_.Sync();
    }
    if (has_statistic) Merge(partials);
    team_.Sync();
    if (has_statistic) {
      if (team_.rank() == 0) FinishStatistic();
      team_.Sync();
    }
  }

  // Computes the multiply-add of the folded value ops. Values that were
  // interpolated or blended before get it; images whose bytes were only moved
  // or replaced keep exact division.
  DATASETD_HOST_DEVICE void PrepareScale() {
    const int end = pass_->end_op;
    if (pass_->folded_op == end) return;
    for (int c = team_.rank(); c < pass_->channels; c += team_.size()) {
      double factor = 1.0;
      double bias = 0.0;
      for (int s = pass_->folded_op; s < end; ++s) {
        if (!state_.drawn[s].is_applied) continue;
        const ValueOp& op = ParamsAs<ValueOp>(field_.steps[s]);
        const bool is_divide = op.kind == ValueOpKind::kDivide;
        const double divisor = is_divide ? op.divisor : op.std[c];
        factor = factor / divisor;
        bias = (bias - (is_divide ? 0.0 : op.mean[c])) / divisor;
      }
      state_.scale.factor[c] = static_cast<float>(factor);
      state_.scale.bias[c] = static_cast<float>(bias);
    }
  }

  // Returns the end of the pixelwise steps that are applied one by one: those
  // before the folded ones.
  DATASETD_HOST_DEVICE int EndOfOps() const {
    if (pass_->folded_op == pass_->end_op) return pass_->end_op;
    // With a tiny std the quotient may be finite although the reciprocal is
    // not.
    for (int c = 0; c < pass_->channels; ++c) {
      const float both = state_.scale.factor[c] - state_.scale.bias[c];
      if (!(both - both == 0.0f)) return pass_->end_op;
    }
    return pass_->folded_op;
  }

  // Partial sums of one rank.
  struct Partials {
#define DATASETD_ROW(Name) Name##Partial of_##Name;
    DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW

    DATASETD_HOST_DEVICE void Init() {
#define DATASETD_ROW(Name) Name##Row::InitPartial(&of_##Name);
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    }
  };

  DATASETD_HOST_DEVICE void Accumulate(const Lanes<Team>& lanes,
                                       Partials* partials) {
    const StepDraw& drawn = StatisticDraw();
    switch (drawn.kind) {
#define DATASETD_ROW(Name)                                            \
  case StepKind::k##Name:                                             \
    AccumulateRow<Name##Row>(                                         \
        drawn.template As<Name##Draw>(), lanes, &partials->of_##Name, \
        StatisticAs<Name##Statistic>(drawn.statistic_index));         \
    break;
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      default:
        break;
    }
  }

  DATASETD_HOST_DEVICE void Merge(const Partials& partials) {
    const StepDraw& drawn = StatisticDraw();
    switch (drawn.kind) {
#define DATASETD_ROW(Name)                                    \
  case StepKind::k##Name:                                     \
    Merge##Name<typename Team::Atomics>(                      \
        partials.of_##Name,                                   \
        StatisticAs<Name##Statistic>(drawn.statistic_index)); \
    break;
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      default:
        break;
    }
  }

  // ---- Maps and taps ----

  DATASETD_HOST_DEVICE int32_t* map_y() const { return memory_.map; }
  DATASETD_HOST_DEVICE int32_t* map_x() const {
    return memory_.map + pass_->height;
  }

  DATASETD_HOST_DEVICE int32_t MapThroughMoves(int axis, int32_t at) const {
    for (int s = pass_->end_move - 1; s >= pass_->first_move; --s) {
      const StepDraw& drawn = state_.drawn[s];
      if (!drawn.is_applied || drawn.kind != StepKind::kMove) continue;
      at = MapBackOne(drawn.As<MoveDraw>().axis[axis],
                      ParamsAs<Move>(field_.steps[s]).padding_mode, s, at);
      if (IsFill(at)) return at;
    }
    return at;
  }

  // Computes the maps of the moves and the taps of the resize for both axes.
  DATASETD_HOST_DEVICE void PrepareMaps() {
    const bool is_resize = pass_->source == PassSource::kResize;
    if (!is_resize && pass_->end_move == 0) return;
    const int32_t size[2] = {pass_->height, pass_->width};
    DATASETD_CHECK_BOUND(int64_t{size[0]} + size[1] <=
                         field_.scratch.map_elements);
    if (is_resize) {
      resizer_.Begin(
          image_, ParamsAs<ResizeParams>(field_.steps[pass_->source_step]),
          state_.drawn[pass_->source_step], size[0], size[1], map_y());
    } else {
      resizer_.ForgetTaps();
    }
    DATASETD_UNROLL
    for (int axis = 0; axis < 2; ++axis) {
      int32_t* const map = axis == 0 ? map_y() : map_x();
      bool has_taps = is_resize && resizer_.KeepsTaps(axis);
      for (int32_t i = team_.rank(); i < size[axis]; i += team_.size()) {
        const int32_t entry = MapThroughMoves(axis, i);
        has_taps = has_taps && map[i] == entry;
        map[i] = entry;
      }
      if (!is_resize || has_taps) continue;
      const AxisTapMaker maker = resizer_.TapMaker(axis);
      for (int32_t i = team_.rank(); i < size[axis]; i += team_.size()) {
        // Maps are always completed, since other ranks read them even after a
        // stop.
        if (i % Team::kLanes == 0) team_.GoesOn();
        resizer_.MakeTaps(maker, axis, i, map[i]);
      }
    }
  }

  // Writes rows of a resize directly to the target. Returns false if they must
  // pass through lanes.
  bool WriteRows(Target target, uint8_t* to, int32_t first, int32_t rows,
                 int end_op, bool needs_lanes) {
    const bool has_ops = end_op > pass_->first_op;
    if (needs_lanes || has_ops || pass_->has_fill ||
        pass_->channels != image_.channels) {
      return false;
    }
    const int32_t width = pass_->width;
    const bool is_slot = target == Target::kSlot;
    if (is_slot ? field_.out_dtype != Dtype::kFloat32 ||
                      field_.layout != Layout::kNchw || width % 16 != 0 ||
                      reinterpret_cast<uintptr_t>(to) % 64 != 0
                : target != Target::kScratch) {
      return false;
    }
    ResizedRow out = {};
    out.scale = end_op < pass_->end_op ? &state_.scale : nullptr;
    out.plane_stride = int64_t{pass_->height} * width;
    out.is_streamed = is_slot;
    for (int32_t y = first; y < first + rows; ++y) {
      if (!team_.GoesOn()) {
        is_left_out_ = true;
        break;
      }
      out.to = reinterpret_cast<float*>(to) + int64_t{y} * width;
      resizer_.WriteRow(y, out);
    }
    return true;
  }

  // ---- One block of pixels ----

  DATASETD_HOST_DEVICE void Make(Lanes<Team>* lanes) {
    const StepDraw& drawn = state_.drawn[pass_->source_step];
    switch (pass_->source) {
      case PassSource::kMoves:
        if (pass_->end_move == 0) {
          GatherLanes<Team>(image_, lanes->y, nullptr, false, lanes);
        } else {
          GatherLanes<Team>(image_, map_y()[lanes->y], map_x(), pass_->has_fill,
                            lanes);
        }
        break;
      case PassSource::kResize:
        if (!IsFill(map_y()[lanes->y])) resizer_.MakeLanes(lanes);
        break;
      case PassSource::kAffine:
        WarpLanes<AffineMap<Team>>(
            image_, ParamsAs<WarpParams>(field_.steps[pass_->source_step]),
            drawn.template As<AffineDraw>(), lanes);
        break;
      case PassSource::kPerspective:
        WarpLanes<PerspectiveMap<Team>>(
            image_, ParamsAs<WarpParams>(field_.steps[pass_->source_step]),
            drawn.template As<PerspectiveDraw>(), lanes);
        break;
      case PassSource::kSharpness:
        MakeWindow<SharpnessWindow, AdjustSharpnessDraw>(drawn, lanes);
        break;
      case PassSource::kBlurX:
        MakeWindow<BlurWindowX, GaussianBlurDraw>(drawn, lanes);
        break;
      case PassSource::kBlurY:
        MakeWindow<BlurWindowY, GaussianBlurDraw>(drawn, lanes);
        break;
    }
    if (pass_->has_fill) {
      PaintFill<Team>(field_, map_y()[lanes->y], map_x(), lanes);
    }
    for (int k = lanes->count; k % Team::kGroup != 0; ++k) {
      for (int c = 0; c < kMaxChannels; ++c) lanes->pixel[c][k] = 0.0f;
    }
  }

  template <template <typename> typename Window, typename Draw>
  DATASETD_HOST_DEVICE void MakeWindow(const StepDraw& drawn,
                                       Lanes<Team>* lanes) {
    using Held =
        std::conditional_t<(Team::kLanes > 1), const Draw, const Draw&>;
    WindowLanes<Window<Held>, Team>(image_, {drawn.template As<Draw>()}, lanes);
  }

  DATASETD_HOST_DEVICE void Store(Target target, uint8_t* to,
                                  const Lanes<Team>& lanes) const {
    const int64_t plane = int64_t{pass_->height} * pass_->width;
    const int64_t at = int64_t{lanes.y} * pass_->width + lanes.first_x;
    if (target != Target::kSlot) {
      StoreScratch<Team>(lanes, plane, reinterpret_cast<float*>(to) + at);
      return;
    }
    const bool is_nhwc = field_.layout == Layout::kNhwc;
    const int stride = is_nhwc ? lanes.channels : 1;
    const int64_t channel_stride = is_nhwc ? 1 : plane;
    uint8_t* const start = to + at * stride * DtypeSizeBytes(field_.out_dtype);
    switch (field_.out_dtype) {
      case Dtype::kUint8:
        StoreLanes<Dtype::kUint8>(lanes, channel_stride, stride, start);
        break;
      case Dtype::kFloat16:
        StoreLanes<Dtype::kFloat16>(lanes, channel_stride, stride, start);
        break;
      case Dtype::kBfloat16:
        StoreLanes<Dtype::kBfloat16>(lanes, channel_stride, stride, start);
        break;
      default:
        StoreLanes<Dtype::kFloat32>(lanes, channel_stride, stride, start);
        break;
    }
  }

  Team team_;
  const AugmentProgram& program_;
  const FieldProgram& field_;
  const ChainMemory memory_;
  ChainState& state_;

  // Row whose image is in memory_.partner, or null.
  const int64_t* kept_ = nullptr;

  // Prefetches the next row's sample.
  Prefetcher<Team> next_source_;

  // Key of the sample.
  DrawKey key_;
  // True if the work was stopped; always false on CUDA.
  bool is_left_out_ = false;
  // The current pass, and the image that it reads.
  const DrawnPass* pass_ = nullptr;
  ChainImage image_;
  ChainResizer<Team> resizer_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
