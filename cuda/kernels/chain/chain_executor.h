// Runs one sample through a chain of steps on a team of ranks: the threads of a
// CUDA block, or one host thread.
//
// A chain is divided into sweeps. A sweep reads an image from memory, applies
// one geometric op with the integer moves after it folded in, then all
// pixelwise ops that follow, and writes the result to scratch memory, or
// rounded to the slot. So Resize, flips, ToDtype and Normalize are one sweep. A
// statistic op begins a new sweep: its statistic is accumulated while the image
// before it is written. Ranks share blocks of Team::kLanes pixels of a row.
// Shared sums are integers, so the result does not depend on the number of
// ranks.
//
// A mix (ops/mix.h) first computes the used part of the row's partner, and
// blends it in when the row's own image is stored.
//
// A Team has
//   kLanes, kGroup         pixels per block, all of one row, and per loop of
//                          vectors; kGroup divides kLanes
//   kRowElements           elements of the rows buffered between the passes of
//                          a resize
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
#include "cuda/kernels/math/interpolation.h"
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
    // A single call site, so that RunSteps is compiled once.
    for (bool is_partner = has_partner;; is_partner = false) {
      RunSteps(batch, is_partner ? partner : index,
               is_partner ? Target::kPartner : Target::kSlot,
               is_partner ? reinterpret_cast<uint8_t*>(memory_.partner) : to);
      if (!is_partner || is_left_out_) break;
    }
    if (Team::kTakesRowsInTurn) kept_ = batch.indices + index;
    return !is_left_out_;
  }

 private:
  enum class Source : uint8_t {
    kMoves,
    kResize,
    kAffine,
    kPerspective,
    kSharpness,
    kBlurX,
    kBlurY,
  };
  // kPartner is like kScratch, except that pixels unused by the mix are
  // skipped.
  enum class Target : uint8_t { kNone, kScratch, kPartner, kSlot };

  DATASETD_HOST_DEVICE bool IsMixed() const {
    return field_.mix.kind != MixKind::kNone;
  }

  // Runs all steps on the sample of row `index`.
  DATASETD_HOST_DEVICE void RunSteps(const BatchTask& batch, int32_t index,
                                     Target target, uint8_t* to) {
    const int64_t sample = batch.indices[index];
    const int64_t draw_index = DrawIndex(batch, index);
    key_ = {program_.seed, batch.epoch, draw_index, 0};
    const ChainImage resident = ResidentImage(sample);
    for (int s = team_.rank(); s < field_.num_steps; s += team_.size()) {
      const Step* step = &field_.steps[s];
      Step sized;
      if (s < field_.num_sized_steps) {
        sized = SizedStep(field_, s, {resident.height, resident.width});
        step = &sized;
      }
      DrawStep(*step, program_.seed, batch.epoch, draw_index, &state_.drawn[s]);
    }
    team_.Sync();
    num_statistics_ = 0;
    is_blended_ = false;
    StartFrom(resident);
    for (int s = 0; s < field_.num_steps && !is_left_out_; ++s) {
      if (state_.drawn[s].is_applied) Add(s);
    }
    Sweep(target, to, nullptr);
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

  DATASETD_HOST_DEVICE void StartFrom(const ChainImage& image) {
    image_ = image;
    height_ = image.height;
    width_ = image.width;
    channels_ = image.channels;
    source_ = Source::kMoves;
    source_step_ = 0;
    first_move_ = end_move_ = 0;
    first_op_ = end_op_ = 0;
  }

  DATASETD_HOST_DEVICE bool IsUntouched() const {
    return source_ == Source::kMoves && end_move_ == 0 && end_op_ == 0;
  }

  // Adds step `s`, which is applied, to the pending sweep.
  DATASETD_HOST_DEVICE void Add(int s) {
    const Step& step = field_.steps[s];
    const StepKind kind = state_.drawn[s].kind;
    if (IsStatistic(kind)) Gather(s);
    if (IsPixelwise(kind)) {
      is_blended_ = is_blended_ || IsBlend(kind);
      if (end_op_ == 0) first_op_ = s;
      end_op_ = s + 1;
      channels_ = step.out_channels;
      return;
    }
    switch (kind) {
      case StepKind::kMove:
        if (end_op_ != 0 ||
            (source_ != Source::kMoves && source_ != Source::kResize)) {
          Materialise();
        }
        if (end_move_ == 0) first_move_ = s;
        end_move_ = s + 1;
        break;
      case StepKind::kResize:
        if (!IsUntouched()) Materialise();
        Begin(Source::kResize, s);
        is_blended_ = is_blended_ || IsInterpolated(step, state_.drawn[s]);
        break;
      case StepKind::kAffine:
      case StepKind::kPerspective:
        NeedScratch();
        Begin(
            kind == StepKind::kAffine ? Source::kAffine : Source::kPerspective,
            s);
        is_blended_ = is_blended_ || ParamsAs<WarpParams>(step).is_bilinear;
        break;
      case StepKind::kAdjustSharpness:
        NeedScratch();
        Begin(Source::kSharpness, s);
        is_blended_ = true;
        break;
      case StepKind::kGaussianBlur:
        NeedScratch();
        Begin(Source::kBlurX, s);
        Materialise();
        Begin(Source::kBlurY, s);
        is_blended_ = true;
        break;
      default:
        break;
    }
    height_ = state_.drawn[s].out_height;
    width_ = state_.drawn[s].out_width;
  }

  // False for a resize to the window's own size, which computes no new values.
  DATASETD_HOST_DEVICE static bool IsInterpolated(const Step& step,
                                                  const StepDraw& drawn) {
    const InterpolationMode mode = ParamsAs<ResizeParams>(step).interpolation;
    const ResizeDraw& window = drawn.As<ResizeDraw>();
    return mode != InterpolationMode::kNearest &&
           mode != InterpolationMode::kNearestExact &&
           (window.height != drawn.out_height ||
            window.width != drawn.out_width);
  }

  DATASETD_HOST_DEVICE static bool IsBlend(StepKind kind) {
    return kind == StepKind::kAdjustBrightness ||
           kind == StepKind::kAdjustContrast ||
           kind == StepKind::kAdjustSaturation || kind == StepKind::kAdjustHue;
  }

  DATASETD_HOST_DEVICE void Begin(Source source, int s) {
    source_ = source;
    source_step_ = s;
  }

  DATASETD_HOST_DEVICE void NeedScratch() {
    if (!image_.is_scratch || !IsUntouched()) Materialise();
  }

  // Writes the pending image to scratch memory, where it becomes the next
  // input.
  DATASETD_HOST_DEVICE void Materialise(const StepDraw* gathered = nullptr) {
    float* const to = image_.is_scratch && IsFirstScratch() ? memory_.image[1]
                                                            : memory_.image[0];
    Sweep(Target::kScratch, reinterpret_cast<uint8_t*>(to), gathered);
    ChainImage image;
    image.data = reinterpret_cast<const uint8_t*>(to);
    image.dtype = Dtype::kFloat32;
    image.height = height_;
    image.width = width_;
    image.channels = channels_;
    image.channel_stride = int64_t{height_} * width_;
    image.row_stride = width_;
    image.pixel_stride = 1;
    image.is_scratch = true;
    StartFrom(image);
  }

  DATASETD_HOST_DEVICE bool IsFirstScratch() const {
    return image_.data == reinterpret_cast<const uint8_t*>(memory_.image[0]);
  }

  // ---- Statistics ----

  // Computes the statistic of step `s` over the image before it.
  DATASETD_HOST_DEVICE void Gather(int s) {
    StepDraw& drawn = state_.drawn[s];
    const int index = num_statistics_++ % kNumStatistics;
    if (team_.rank() == 0) {
      drawn.statistic_index = static_cast<uint8_t>(index);
      switch (drawn.kind) {
#define DATASETD_ROW(Name)                           \
  case StepKind::k##Name:                            \
    Init##Name(StatisticAs<Name##Statistic>(index)); \
    break;
        DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
        default:
          break;
      }
    }
    team_.Sync();
    if (image_.is_scratch && IsUntouched()) {
      Sweep(Target::kNone, nullptr, &drawn);
    } else {
      Materialise(&drawn);
    }
    if (is_left_out_) return;
    if (team_.rank() == 0) {
      switch (drawn.kind) {
#define DATASETD_ROW(Name)                            \
  case StepKind::k##Name:                             \
    Finish##Name(channels_, height_, width_,          \
                 StatisticAs<Name##Statistic>(index), \
                 &drawn.template As<Name##Draw>());   \
    break;
        DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
        default:
          break;
      }
    }
    team_.Sync();
  }

  template <typename Statistic>
  DATASETD_HOST_DEVICE Statistic* StatisticAs(int index) {
    return reinterpret_cast<Statistic*>(state_.statistic[index]);
  }

  // ---- Sweeps ----

  // Writes the pending image, and accumulates the statistic of `gathered`
  // unless that is null.
  DATASETD_HOST_DEVICE DATASETD_NOINLINE void Sweep(Target target, uint8_t* to,
                                                    const StepDraw* gathered) {
    if (is_left_out_) return;
    PrepareMaps();
    Partials partials;
    partials.Init();
    const int32_t blocks = (width_ + Team::kLanes - 1) / Team::kLanes;
    const int end_op = FoldValueOps();
    const int32_t band =
        source_ == Source::kResize ? resizer_.BandRows() : height_;
    const bool is_partner = target == Target::kPartner;
    const bool is_mixed = target == Target::kSlot && IsMixed();
    const int32_t end = is_partner ? state_.mix.bottom : height_;
    for (int32_t first = is_partner ? state_.mix.top : 0; first < end;
         first += band) {
      const int32_t rows = end - first < band ? end - first : band;
      if (source_ == Source::kResize) {
        if (!resizer_.MakeRows(first, rows)) {
          is_left_out_ = true;
          return;
        }
        if constexpr (Team::kLanes > 1) {
          if (WriteRows(target, to, first, rows, end_op,
                        is_mixed || gathered != nullptr)) {
            if (is_left_out_) return;
            continue;
          }
        }
      }
      for (int32_t unit = team_.rank(); unit < rows * blocks;
           unit += team_.size()) {
        if (!team_.GoesOn()) {
          is_left_out_ = true;
          return;
        }
        Lanes<Team> lanes;
        const int32_t row = unit / blocks;
        lanes.y = first + row;
        lanes.first_x = (unit - row * blocks) * Team::kLanes;
        if (image_.is_scratch && lanes.first_x == 0) next_source_.AskForSome();
        const int32_t left = width_ - lanes.first_x;
        lanes.count = left < Team::kLanes ? left : Team::kLanes;
        if (is_partner && !IsMixedIn(state_.mix, lanes)) continue;
        lanes.channels = image_.channels;
        Make(&lanes);
        for (int s = first_op_; s < end_op; ++s) {
          if (state_.drawn[s].is_applied) {
            ApplyStep(field_.steps[s], state_.drawn[s], state_, key_, &lanes);
          }
        }
        if (end_op < end_op_) ScaleLanes(state_.scale, &lanes);
        if (gathered != nullptr) Accumulate(*gathered, lanes, &partials);
        if (is_mixed) {
          MixLanes(field_.mix.kind, state_.mix, memory_.partner, height_,
                   width_, &lanes);
        }
        Store(target, to, lanes);
      }
      // The next band overwrites these rows.
      if (source_ == Source::kResize) team_.Sync();
    }
    if (gathered != nullptr) Merge(*gathered, partials);
    team_.Sync();
  }

  // Folds the value ops at the end into one multiply-add per channel, if the
  // image was interpolated or blended. Images whose bytes were only moved or
  // replaced keep exact division. Returns the end of the steps before the
  // folded ones.
  DATASETD_HOST_DEVICE int FoldValueOps() {
    int end = end_op_;
    if (!is_blended_) return end;
    for (int s = end - 1; s >= first_op_; --s) {
      if (!state_.drawn[s].is_applied) continue;
      if (state_.drawn[s].kind != StepKind::kValue) break;
      end = s;
    }
    if (end == end_op_) return end;
    for (int c = team_.rank(); c < channels_; c += team_.size()) {
      double factor = 1.0;
      double bias = 0.0;
      for (int s = end; s < end_op_; ++s) {
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
    team_.Sync();
    // With a tiny std the quotient may be finite although the reciprocal is
    // not.
    for (int c = 0; c < channels_; ++c) {
      const float both = state_.scale.factor[c] - state_.scale.bias[c];
      if (!(both - both == 0.0f)) return end_op_;
    }
    return end;
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

  DATASETD_HOST_DEVICE void Accumulate(const StepDraw& drawn,
                                       const Lanes<Team>& lanes,
                                       Partials* partials) {
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

  DATASETD_HOST_DEVICE void Merge(const StepDraw& drawn,
                                  const Partials& partials) {
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
  DATASETD_HOST_DEVICE int32_t* map_x() const { return memory_.map + height_; }

  DATASETD_HOST_DEVICE int32_t MapThroughMoves(int axis, int32_t at) const {
    for (int s = end_move_ - 1; s >= first_move_; --s) {
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
    has_fill_ = false;
    for (int s = first_move_; s < end_move_; ++s) {
      if (!state_.drawn[s].is_applied ||
          state_.drawn[s].kind != StepKind::kMove) {
        continue;
      }
      const Move& move = ParamsAs<Move>(field_.steps[s]);
      has_fill_ = has_fill_ || (move.kind == MoveKind::kPad &&
                                move.padding_mode == PaddingMode::kConstant);
    }
    const bool is_resize = source_ == Source::kResize;
    if (!is_resize && end_move_ == 0) return;
    if (is_resize) {
      resizer_.Begin(image_, ParamsAs<ResizeParams>(field_.steps[source_step_]),
                     state_.drawn[source_step_], height_, width_, map_y());
    } else {
      resizer_.ForgetTaps();
    }
    const int32_t size[2] = {height_, width_};
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
    team_.Sync();
    if (is_resize) resizer_.FinishTaps();
  }

  // Writes rows of a resize directly to the target. Returns false if they must
  // pass through lanes.
  bool WriteRows(Target target, uint8_t* to, int32_t first, int32_t rows,
                 int end_op, bool needs_lanes) {
    const bool has_ops = end_op > first_op_;
    if (needs_lanes || has_ops || has_fill_ || channels_ != image_.channels) {
      return false;
    }
    const bool is_slot = target == Target::kSlot;
    if (is_slot ? field_.out_dtype != Dtype::kFloat32 ||
                      field_.layout != Layout::kNchw || width_ % 16 != 0 ||
                      reinterpret_cast<uintptr_t>(to) % 64 != 0
                : target != Target::kScratch) {
      return false;
    }
    ResizedRow out = {};
    out.scale = end_op < end_op_ ? &state_.scale : nullptr;
    out.plane_stride = int64_t{height_} * width_;
    out.is_streamed = is_slot;
    for (int32_t y = first; y < first + rows; ++y) {
      if (!team_.GoesOn()) {
        is_left_out_ = true;
        break;
      }
      out.to = reinterpret_cast<float*>(to) + int64_t{y} * width_;
      resizer_.WriteRow(y, out);
    }
    return true;
  }

  // ---- One block of pixels ----

  DATASETD_HOST_DEVICE void Make(Lanes<Team>* lanes) {
    const StepDraw& drawn = state_.drawn[source_step_];
    switch (source_) {
      case Source::kMoves:
        if (end_move_ == 0) {
          GatherLanes<Team>(image_, lanes->y, nullptr, false, lanes);
        } else {
          GatherLanes<Team>(image_, map_y()[lanes->y], map_x(), has_fill_,
                            lanes);
        }
        break;
      case Source::kResize:
        if (!IsFill(map_y()[lanes->y])) resizer_.MakeLanes(lanes);
        break;
      case Source::kAffine:
        WarpLanes<AffineMap<Team>>(
            image_, ParamsAs<WarpParams>(field_.steps[source_step_]),
            drawn.template As<AffineDraw>(), lanes);
        break;
      case Source::kPerspective:
        WarpLanes<PerspectiveMap<Team>>(
            image_, ParamsAs<WarpParams>(field_.steps[source_step_]),
            drawn.template As<PerspectiveDraw>(), lanes);
        break;
      case Source::kSharpness:
        WindowLanes<SharpnessWindow, Team>(
            image_, {drawn.template As<AdjustSharpnessDraw>()}, lanes);
        break;
      case Source::kBlurX:
        WindowLanes<BlurWindowX, Team>(
            image_, {drawn.template As<GaussianBlurDraw>()}, lanes);
        break;
      case Source::kBlurY:
        WindowLanes<BlurWindowY, Team>(
            image_, {drawn.template As<GaussianBlurDraw>()}, lanes);
        break;
    }
    if (has_fill_) {
      PaintFill<Team>(field_, map_y()[lanes->y], map_x(), lanes);
    }
    for (int k = lanes->count; k % Team::kGroup != 0; ++k) {
      for (int c = 0; c < kMaxChannels; ++c) lanes->pixel[c][k] = 0.0f;
    }
  }

  DATASETD_HOST_DEVICE void Store(Target target, uint8_t* to,
                                  const Lanes<Team>& lanes) const {
    if (target == Target::kNone) return;
    const int64_t plane = int64_t{height_} * width_;
    const int64_t at = int64_t{lanes.y} * width_ + lanes.first_x;
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
  int num_statistics_ = 0;
  bool is_blended_ = false;
  // True if the work was stopped; always false on CUDA.
  bool is_left_out_ = false;
  // The image in memory and the pending work: the source, then the applied
  // moves of [first_move_, end_move_), then the applied pixelwise steps of
  // [first_op_, end_op_). An end of 0 means none.
  ChainImage image_;
  Source source_;
  int source_step_;
  int first_move_, end_move_;
  int first_op_, end_op_;
  // Size of the image after the pending work.
  int32_t height_, width_, channels_;
  // State of the current sweep.
  bool has_fill_ = false;
  ChainResizer<Team> resizer_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_EXECUTOR_H_
