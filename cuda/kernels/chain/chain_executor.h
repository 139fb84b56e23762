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
//   kHasVectors            true on the host: there is a Vector, and the team
//                          takes the rows in turn, so that a row keeps its
//                          image for the next row, whose partner it is; else a
//                          block is in registers (block_lanes.h) and kLanes is
//                          4
//   kRowElements           elements of the rows buffered between the two sums
//                          of a resize
//   Atomics                as in ops/atomics.h
//   Vector                 of host_team.h, if kHasVectors
//   rank(), size(), Sync()
//   GoesOn()               false: skip the rest (host_checkpoint.h)

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
#endif

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "cuda/kernels/chain/block_lanes.h"
#include "cuda/kernels/chain/block_sources.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_mix.h"
#include "cuda/kernels/chain/chain_pass.h"
#include "cuda/kernels/chain/chain_resizer.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/chain_warps.h"
#include "cuda/kernels/chain/chain_windows.h"
#include "cuda/kernels/chain/host_sources.h"
#include "cuda/kernels/chain/resize_passes.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/draw_step.h"
#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/op_rows.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/prefetcher.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

template <typename Team>
class ChainExecutor {
 public:
  // All arguments must outlive this. `state` and `memory` belong to the team.
  // All ranks call it.
  DATASETD_HOST_DEVICE ChainExecutor(const Team& team,
                                     const AugmentProgram& program,
                                     const FieldProgram& field,
                                     const ChainMemory& memory,
                                     ChainState* state)
      : team_(team),
        program_(program),
        field_(field),
        state_(*state),
        resizer_(team, field.scratch, *state) {
    if (team_.rank() == 0) {
      state_.memory = memory;
      // The compiler may load these before it asks whether they are used.
      state_.mix = {};
      state_.scale = {};
      state_.resize.is_columns_first = false;
      if constexpr (!Team::kHasVectors) state_.strip = {};
    }
    team_.Sync();
  }

  // For teams without vectors: lets the next Run make this strip of the row's
  // image, unless a field of several passes has a mix. All ranks call it.
  DATASETD_HOST_DEVICE void SetStrip(const Strip& strip) {
    if (team_.rank() == 0) state_.strip = strip;
  }

  // Runs row `index` of the batch. All ranks call it. Returns false if the work
  // was stopped.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE bool Run(const BatchTask& batch,
                                                      int32_t index) {
    const int32_t partner = PartnerRow(batch, index);
    bool has_partner = false;
    if (IsMixed()) {
      if (team_.rank() == 0) {
        state_.mix = DrawMix(field_.mix, program_.seed, batch, index,
                             field_.out_height, field_.out_width);
      }
      team_.Sync();
      has_partner = HasPartner(state_.mix) && kept_ != batch.indices + partner;
      if (field_.mix.labels_field >= 0 && IsFirstStrip()) {
        WriteMixedLabels(team_, state_.mix, program_.mixture,
                         program_.fields[field_.mix.labels_field], batch, index,
                         partner);
      }
    }
    if constexpr (Team::kHasVectors) {
      if (index + 1 < batch.num_samples) {
        const ChainImage next = ResidentImage(batch.indices[index + 1]);
        next_source_ =
            Prefetcher(next.data, int64_t{next.height} * next.row_stride *
                                      DtypeSizeBytes(next.dtype));
      }
    }
    const int64_t sample_bytes = int64_t{field_.out_height} * field_.out_width *
                                 field_.out_channels *
                                 DtypeSizeBytes(field_.out_dtype);
    uint8_t* const to = batch.slot + field_.offset_bytes + index * sample_bytes;
    // A single call site, so that RunPasses is compiled once.
    for (bool is_partner = has_partner;; is_partner = false) {
      RunPasses(
          batch, is_partner ? partner : index,
          is_partner ? Target::kPartner : Target::kSlot,
          is_partner ? reinterpret_cast<uint8_t*>(state_.memory.partner) : to);
      if (!is_partner || is_left_out_) break;
    }
    if (Team::kHasVectors) kept_ = batch.indices + index;
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
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void RunPasses(
      const BatchTask& batch, int32_t index, Target target, uint8_t* to) {
    const int64_t draw_index = DrawIndex(batch, index);
    const ChainImage resident = ResidentImage(batch.indices[index]);
    if (team_.rank() == 0) {
      state_.key = {program_.seed, batch.epoch, draw_index, 0};
      state_.image = resident;
    }
    DATASETD_NO_UNROLL
    for (int s = team_.rank(); s < field_.num_steps; s += team_.size()) {
      const Step* step = &field_.steps[s];
      if (s < field_.num_sized_steps) {
        Step* const sized = &state_.sized[s];
        SizeStep(field_, s, {resident.height, resident.width}, sized);
        step = sized;
      }
      DrawStep(*step, program_.seed, batch.epoch, draw_index, &state_.drawn[s]);
    }
    team_.Sync();
    if (team_.rank() == 0) {
      DrawPasses(field_, resident.height, resident.width,
                 /*warps_bytes=*/!Team::kHasVectors, &state_);
      if constexpr (!Team::kHasVectors) FindStripRows();
    }
    for (int p = 0;; ++p) {
      pass_ = &state_.passes[p];
      float* const scratch =
          p % 2 == 0 ? state_.memory.image[0] : state_.memory.image[1];
      if (team_.rank() == 0) BeginPass();
      team_.Sync();
      if constexpr (!Team::kHasVectors) {
        if (state_.strip_from >= state_.strip_to) {
          team_.Sync();
          return;
        }
      }
      const bool is_last = p == state_.num_passes - 1;
      // A single call site, so that RunPass is compiled once.
      RunPass(is_last ? target : Target::kScratch,
              is_last ? to : reinterpret_cast<uint8_t*>(scratch));
      team_.Sync();
      if (is_last || is_left_out_) break;
      if (team_.rank() == 0) {
        if (HasStatistic()) FinishStatistic();
        SetScratchImage(scratch);
      }
    }
  }

  DATASETD_HOST_DEVICE bool IsFirstStrip() const {
    if constexpr (Team::kHasVectors) return true;
    return state_.strip.index == 0;
  }

  // Sets the rows of the output that are made. One rank calls it.
  DATASETD_HOST_DEVICE void FindStripRows() {
    const Strip& strip = state_.strip;
    state_.strip_from = 0;
    state_.strip_to = strip.index == 0 ? INT32_MAX : 0;
    if (strip.count == 1 || state_.num_passes > 1) return;
    const int32_t height = state_.passes[0].height;
    const int32_t rows = (height + strip.count - 1) / strip.count;
    state_.strip_from = strip.index * rows;
    state_.strip_to =
        height < state_.strip_from + rows ? height : state_.strip_from + rows;
  }

  // Sets what a pass begins with. One rank calls it.
  DATASETD_HOST_DEVICE void BeginPass() {
    if (HasStatistic()) InitStatistic();
    if (pass_->source == PassSource::kResize) {
      resizer_.Set(ParamsAs<ResizeParams>(field_.steps[pass_->source_step]),
                   state_.drawn[pass_->source_step], pass_->height,
                   pass_->width);
    }
  }

  DATASETD_HOST_DEVICE ChainImage ResidentImage(int64_t sample) const {
    ChainImage image;
    image.dtype = field_.in_dtype;
    image.height = field_.in_height;
    image.width = field_.in_width;
    image.channels = field_.channels;
    image.channel_stride = 1;
    image.data = field_.ragged != nullptr
                     ? RaggedData(program_.mixture, field_, sample,
                                  &image.height, &image.width)
                     : SampleData(program_.mixture, field_, sample);
    image.row_stride = image.width * field_.channels;
    image.pixel_stride = field_.channels;
    image.is_scratch = false;
    return image;
  }

  // Makes the pass's image, at `data` in scratch memory, the next input.
  DATASETD_HOST_DEVICE void SetScratchImage(const float* data) {
    state_.image.data = reinterpret_cast<const uint8_t*>(data);
    state_.image.dtype = Dtype::kFloat32;
    state_.image.height = pass_->height;
    state_.image.width = pass_->width;
    state_.image.channels = pass_->channels;
    state_.image.channel_stride =
        int64_t{state_.image.height} * state_.image.width;
    state_.image.row_stride = state_.image.width;
    state_.image.pixel_stride = 1;
    state_.image.is_scratch = true;
  }

  // ---- Statistics ----

  DATASETD_HOST_DEVICE bool HasStatistic() const {
    return pass_->statistic_step != kNoStep;
  }
  // REQUIRES: HasStatistic().
  DATASETD_HOST_DEVICE StepDraw& StatisticDraw() const {
    return state_.drawn[pass_->statistic_step];
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void InitStatistic() {
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

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void FinishStatistic() {
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

  // Runs pass_ on state_.image and writes `to`.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void RunPass(Target target,
                                                          uint8_t* to) {
    const int32_t height = pass_->height;
    const int32_t width = pass_->width;
    const PassSource source = pass_->source;
    const bool is_resize = source == PassSource::kResize;
    const bool has_statistic = HasStatistic();
    DATASETD_CHECK_BOUND(target != Target::kScratch ||
                         int64_t{height} * width * pass_->channels <=
                             pass_->max_elements);
    PrepareMaps();
    PrepareScale();
    if (is_resize || pass_->end_move != 0 ||
        pass_->folded_op != pass_->end_op) {
      team_.Sync();
    }
    if (is_resize) resizer_.FinishTaps();
    const int end_op = EndOfOps();
    const bool is_scaled = end_op < pass_->end_op;
    Partials partials;
    partials.Init();
    const bool is_partner = target == Target::kPartner;
    const bool is_mixed = target == Target::kSlot && IsMixed();
    const int first_step = pass_->first_op;
    const int end_step = end_op + (is_scaled ? 1 : 0);
    const int32_t channels = state_.image.channels;
    int32_t begin = is_partner ? state_.mix.top : 0;
    int32_t end = is_partner ? state_.mix.bottom : height;
    if constexpr (!Team::kHasVectors) {
      begin = begin < state_.strip_from ? state_.strip_from : begin;
      end = end > state_.strip_to ? state_.strip_to : end;
    }
    const int32_t band = is_resize ? resizer_.BandRows() : height;
    const BlockOutput out = OutputOf(target, to);
    const ElementKind kind = KindOf(state_.image);
    const bool has_neighbours =
        Team::kHasVectors ||
        (is_resize ? resizer_.HasNeighbours() : source != PassSource::kWarp);
    // Ranks take the blocks of a band in turn.
    const int32_t blocks = (width + Team::kLanes - 1) / Team::kLanes;
    const int32_t first_row = team_.rank() / blocks;
    const int32_t first_block = team_.rank() - first_row * blocks;
    const int32_t step_rows = team_.size() / blocks;
    const int32_t step_blocks = team_.size() - step_rows * blocks;
    for (int32_t first = begin; first < end; first += band) {
      const int32_t rows = end - first < band ? end - first : band;
      if (is_resize) {
        if (!resizer_.MakeRows(first, rows)) {
          is_left_out_ = true;
          return;
        }
        if constexpr (Team::kHasVectors) {
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
        lanes.first_x = has_neighbours ? block * Team::kLanes : block;
        lanes.step = has_neighbours ? 1 : blocks;
        row += step_rows;
        block += step_blocks;
        if (block >= blocks) {
          block -= blocks;
          ++row;
        }
        if constexpr (Team::kHasVectors) {
          // As late as possible, so that the passes' images displace little.
          // Into the second-level cache, since the first is in use. 32 lines
          // are twice as many as a core asks for at a time.
          if (state_.image.is_scratch && target == Target::kSlot &&
              lanes.first_x == 0) {
            next_source_.FetchSome<2>(32);
          }
        }
        if (has_neighbours) {
          const int32_t left = width - lanes.first_x;
          lanes.count = left < Team::kLanes ? left : Team::kLanes;
        } else {
          lanes.count = CountOfQuarters<Team>(lanes.first_x, lanes.step, width);
        }
        if (is_partner && !IsMixedIn(state_.mix, lanes)) continue;
        lanes.channels = channels;
        Make(source, kind, &lanes);
        for (int s = first_step; s < end_step; ++s) {
          if (s == end_op) {
            ScaleLanes(state_.scale, &lanes);
          } else if (state_.drawn[s].is_applied) {
            ApplyStep(field_.steps[s], state_.drawn[s], state_, &lanes);
          }
        }
        if (has_statistic) Accumulate(lanes, &partials);
        if (is_mixed) {
          MixLanes(field_.mix.kind, state_.mix, state_.memory.partner, height,
                   width, &lanes);
        }
        Store(lanes, out);
      }
      // The next band overwrites these rows.
      if (is_resize && first + band < end) team_.Sync();
    }
    if (has_statistic) Merge(partials);
  }

  // Computes the multiply-add of the folded value ops. Values that were
  // interpolated or blended before get it; images whose bytes were only moved
  // or replaced keep exact division.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void PrepareScale() {
    const int end = pass_->end_op;
    if (pass_->folded_op == end) return;
    DATASETD_NO_UNROLL
    for (int c = team_.rank(); c < pass_->channels; c += team_.size()) {
      double factor = 1.0;
      double bias = 0.0;
      DATASETD_NO_UNROLL
      for (int s = pass_->folded_op; s < end; ++s) {
        if (!state_.drawn[s].is_applied) continue;
        const ValueOp& op = ParamsAs<ValueOp>(field_.steps[s]);
        const bool is_divide = op.kind == ValueOpKind::kDivide;
        const double divisor = is_divide ? op.divisor : op.std[c];
        factor = Quotient(factor, divisor);
        bias = Quotient(bias - (is_divide ? 0.0 : op.mean[c]), divisor);
      }
      state_.scale.factor[c] = static_cast<float>(factor);
      state_.scale.bias[c] = static_cast<float>(bias);
    }
  }

  // Returns the end of the pixelwise steps that are applied one by one: those
  // before the folded ones.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE int EndOfOps() const {
    if (pass_->folded_op == pass_->end_op) return pass_->end_op;
    // With a tiny std the quotient may be finite although the reciprocal is
    // not.
    DATASETD_NO_UNROLL
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

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Accumulate(
      const Lanes<Team>& lanes, Partials* partials) {
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

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Merge(
      const Partials& partials) {
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

  DATASETD_HOST_DEVICE int32_t* map_y() const { return state_.memory.map; }
  DATASETD_HOST_DEVICE int32_t* map_x() const {
    return state_.memory.map + pass_->height;
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

  // Computes the maps of the moves and the taps of the resize for both axes, of
  // rows those of the strip.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void PrepareMaps() {
    const bool is_resize = pass_->source == PassSource::kResize;
    if (!is_resize && pass_->end_move == 0) return;
    const int32_t size[2] = {pass_->height, pass_->width};
    DATASETD_CHECK_BOUND(int64_t{size[0]} + size[1] <=
                         field_.scratch.map_elements);
    if (is_resize) {
      resizer_.Begin();
    } else {
      resizer_.ForgetTaps();
    }
    DATASETD_NO_UNROLL
    for (int axis = 0; axis < 2; ++axis) {
      int32_t* const map = axis == 0 ? map_y() : map_x();
      int32_t begin = team_.rank();
      int32_t end = size[axis];
      if (!Team::kHasVectors && axis == 0) {
        begin += state_.strip_from;
        end = end > state_.strip_to ? state_.strip_to : end;
      }
      bool has_taps = is_resize && resizer_.KeepsTaps(axis);
      DATASETD_NO_UNROLL
      for (int32_t i = begin; i < end; i += team_.size()) {
        const int32_t entry = MapThroughMoves(axis, i);
        has_taps = has_taps && map[i] == entry;
        map[i] = entry;
      }
      if (!is_resize || has_taps) continue;
      const AxisTapMaker maker = resizer_.TapMaker(axis);
      DATASETD_NO_UNROLL
      for (int32_t i = begin; i < end; i += team_.size()) {
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
        pass_->channels != state_.image.channels) {
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

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Make(PassSource source,
                                                       ElementKind kind,
                                                       Lanes<Team>* lanes) {
    if (source == PassSource::kResize) {
      if (!IsFill(map_y()[lanes->y])) {
        resizer_.MakeLanes(lanes);
      } else if constexpr (!Team::kHasVectors) {
        ClearLanes(lanes);
      }
      if (pass_->has_fill) PaintFills(lanes);
    } else if constexpr (Team::kHasVectors) {
      MakeOnHost(lanes);
    } else {
      MakeInBlock(source, kind, lanes);
    }
    if constexpr (Team::kHasVectors) {
      for (int k = lanes->count; k % Team::kGroup != 0; ++k) {
        for (int c = 0; c < kMaxChannels; ++c) lanes->pixel[c][k] = 0.0f;
      }
    }
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void PaintFills(
      Lanes<Team>* lanes) {
    PaintFill<Team>(field_, map_y()[lanes->y], map_x(), lanes);
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void MakeInBlock(
      PassSource source, ElementKind kind, Lanes<Team>* lanes) {
    // The most frequent one, before a switch looks for the others.
    if (source == PassSource::kMoves) {
      const bool is_moved = pass_->end_move != 0;
      if (!is_moved && kind != ElementKind::kAny) {
        GatherNeighbours(state_.image, kind, lanes->y, lanes);
      } else {
        GatherMoved(state_.image, kind, is_moved ? map_y()[lanes->y] : lanes->y,
                    is_moved ? map_x() : nullptr, lanes);
        if (pass_->has_fill) PaintFills(lanes);
      }
      return;
    }
    const StepDraw& drawn = state_.drawn[pass_->source_step];
    switch (source) {
      case PassSource::kMoves:
      case PassSource::kResize:
        break;
      case PassSource::kWarp:
        WarpBlock(state_.image,
                  ParamsAs<WarpParams>(field_.steps[pass_->source_step]), drawn,
                  lanes);
        break;
      case PassSource::kSharpness:
        SharpenBlock(state_.image, drawn.template As<AdjustSharpnessDraw>(),
                     lanes);
        break;
      case PassSource::kBlurX:
        BlurBlock<true>(state_.image, drawn.template As<GaussianBlurDraw>(),
                        lanes);
        break;
      case PassSource::kBlurY:
        BlurBlock<false>(state_.image, drawn.template As<GaussianBlurDraw>(),
                         lanes);
        break;
    }
  }

  void MakeOnHost(Lanes<Team>* lanes) {
    const StepDraw& drawn = state_.drawn[pass_->source_step];
    switch (pass_->source) {
      case PassSource::kMoves:
        if (pass_->end_move == 0) {
          GatherLanes<Team>(state_.image, lanes->y, nullptr, false, lanes);
        } else {
          GatherLanes<Team>(state_.image, map_y()[lanes->y], map_x(),
                            pass_->has_fill, lanes);
          if (pass_->has_fill) PaintFills(lanes);
        }
        break;
      case PassSource::kResize:
        break;
      case PassSource::kWarp:
        WarpLanes<Team>(state_.image,
                        ParamsAs<WarpParams>(field_.steps[pass_->source_step]),
                        drawn, lanes);
        break;
      case PassSource::kSharpness:
        WindowLanes<SharpnessWindow>(
            state_.image, {drawn.template As<AdjustSharpnessDraw>()}, lanes);
        break;
      case PassSource::kBlurX:
        WindowLanes<BlurWindowX>(
            state_.image, {drawn.template As<GaussianBlurDraw>()}, lanes);
        break;
      case PassSource::kBlurY:
        WindowLanes<BlurWindowY>(
            state_.image, {drawn.template As<GaussianBlurDraw>()}, lanes);
        break;
    }
  }

  DATASETD_HOST_DEVICE BlockOutput OutputOf(Target target, uint8_t* to) const {
    BlockOutput out;
    out.to = to;
    out.plane = int64_t{pass_->height} * pass_->width;
    out.width = pass_->width;
    out.is_rounded = target == Target::kSlot;
    out.dtype = out.is_rounded ? field_.out_dtype : Dtype::kFloat32;
    out.element_bytes = DtypeSizeBytes(out.dtype);
    out.is_nhwc = out.is_rounded && field_.layout == Layout::kNhwc;
    out.has_vectors = out.width % 4 == 0 && (reinterpret_cast<uintptr_t>(to) &
                                             (4 * out.element_bytes - 1)) == 0;
    return out;
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Store(
      const Lanes<Team>& lanes, const BlockOutput& out) const {
    if constexpr (!Team::kHasVectors) {
      StoreBlock(lanes, out);
    } else {
      const int64_t at = int64_t{lanes.y} * out.width + lanes.first_x;
      if (out.is_rounded) {
        const int stride = out.is_nhwc ? lanes.channels : 1;
        VisitImageDtype(out.dtype, [&](auto dtype) DATASETD_TEAM_ATTR {
          StoreLanes<dtype>(lanes, out.is_nhwc ? 1 : out.plane, stride,
                            out.to + at * stride * out.element_bytes);
        });
      } else {
        StoreScratch<Team>(lanes, out.plane,
                           reinterpret_cast<float*>(out.to) + at);
      }
    }
  }

  Team team_;
  const AugmentProgram& program_;
  const FieldProgram& field_;
  ChainState& state_;

  // Row whose image is in state_.memory.partner, or null.
  const int64_t* kept_ = nullptr;

  // Prefetches the next row's sample.
  Prefetcher next_source_;

  // True if the work was stopped; always false on CUDA.
  bool is_left_out_ = false;
  const DrawnPass* pass_ = nullptr;  // the current one
  ChainResizer<Team> resizer_;
};

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
