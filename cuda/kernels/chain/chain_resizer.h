// The resize of a pass, on a team of ranks. Holds the taps of both axes and
// the rows between the two passes.
//
// Sums along a row cost more than sums down a column. So an image that shrinks
// in height is summed down its columns first, which leaves fewer rows to sum
// along; any other image is summed along its rows first, each row once. The
// order depends on the sizes only, so it is the same for every team.
//
// Between the passes a host team buffers image rows, raw or summed, while
// output rows need them; a CUDA team buffers output rows that are summed down.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/block_lanes.h"
#include "cuda/kernels/chain/block_resize.h"
#include "cuda/kernels/chain/chain_halving.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/resize_passes.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

template <typename Team>
class ChainResizer {
 public:
  // All arguments must outlive this.
  DATASETD_HOST_DEVICE ChainResizer(const Team& team,
                                    const ChainScratch& scratch,
                                    ChainState& state)
      : team_(team), scratch_(scratch), state_(state) {}

  // Sets state.resize to the resize `drawn` of state.image, whose output is
  // moved to height x width: output coordinate i of an axis is coordinate i of
  // the axis' map in the resize, or fill. One rank calls it.
  DATASETD_HOST_DEVICE void Set(const ResizeParams& params,
                                const StepDraw& drawn, int32_t height,
                                int32_t width) {
    const ResizeDraw& window = drawn.As<ResizeDraw>();
    const AxisResample axis_y = {window.height, drawn.out_height,
                                 params.interpolation, params.antialias};
    const AxisResample axis_x = {window.width, drawn.out_width,
                                 params.interpolation, params.antialias};
    const int32_t num_taps_y = NumTaps(axis_y);
    ResizeState& resize = state_.resize;
    if constexpr (Team::kHasVectors) {
      const bool is_same =
          has_taps_ && resize.size[0] == height && resize.size[1] == width;
      keeps_[0] = is_same && resize.axis[0] == axis_y &&
                  resize.window.top == window.top;
      keeps_[1] = is_same && resize.axis[1] == axis_x &&
                  resize.num_taps[0] == num_taps_y;
      has_taps_ = true;
    }
    resize.window = window;
    resize.size[0] = height;
    resize.size[1] = width;
    resize.clamp = params.clamp;
    resize.scale_y = static_cast<float>(window.height) / drawn.out_height;
    resize.is_columns_first = window.height > drawn.out_height;
    resize.axis[0] = axis_y;
    resize.axis[1] = axis_x;
    resize.num_taps[0] = num_taps_y;
    resize.num_taps[1] = NumTaps(axis_x);
    resize.row_capacity = RowCapacity();
    DATASETD_CHECK_BOUND(int64_t{resize.num_taps[0]} * height +
                             int64_t{resize.num_taps[1]} * width <=
                         scratch_.tap_elements);
    DATASETD_CHECK_BOUND(IsInPlace() || resize.row_capacity * PlaneStride() *
                                                state_.image.channels <=
                                            scratch_.row_elements);
    DATASETD_CHECK_BOUND(LineStride(window.width) * state_.image.channels <=
                         scratch_.line_elements);
  }

  // Begins the resize that was set. All ranks call it and every other method
  // except MakeLanes and MakeTaps. After it, one rank per coordinate calls
  // MakeTaps, unless KeepsTaps is true for the axis and its map is unchanged.
  DATASETD_HOST_DEVICE void Begin() {
    rows_from_ = rows_to_ = 0;
    line_y_ = -1;
  }

  // True if the taps of the previous resize are valid for this axis, given an
  // equal map.
  DATASETD_HOST_DEVICE bool KeepsTaps(int axis) const {
    return Team::kHasVectors && keeps_[axis];
  }

  // Invalidates the taps, because the maps are overwritten.
  DATASETD_HOST_DEVICE void ForgetTaps() { has_taps_ = false; }

  DATASETD_HOST_DEVICE AxisTapMaker TapMaker(int axis) const {
    return AxisTapMaker(state_.resize.axis[axis]);
  }

  // Computes the taps of output coordinate i of an axis, whose map entry is
  // `entry`.
  DATASETD_HOST_DEVICE void MakeTaps(const AxisTapMaker& maker, int axis,
                                     int32_t i, int32_t entry) {
    int32_t* const index = TapIndex(axis) + i;
    maker.Make(IsFill(entry) ? 0 : entry, state_.resize.size[axis], index,
               TapWeight(axis) + i);
    if (axis == 1) {
      is_reach_known_ = false;
      return;
    }
    // Vertical taps index rows of the image, horizontal taps columns of the
    // window.
    for (int32_t t = 0; t < state_.resize.num_taps[0]; ++t) {
      index[int64_t{t} * state_.resize.size[0]] += state_.resize.window.top;
    }
  }

  // Call after all taps are computed and the ranks are synchronised.
  DATASETD_HOST_DEVICE void FinishTaps() {
    if constexpr (Team::kHasVectors) {
      if (is_reach_known_) return;
      const int32_t width = state_.resize.size[1];
      reach_ = ReachOf<Team>(Taps(1), width);
      halves_width_ = state_.resize.window.width == 2 * width &&
                      halving_.Set(Taps(1), width);
      is_reach_known_ = true;
    }
  }

  // Returns the number of output rows that one MakeRows can serve.
  DATASETD_HOST_DEVICE int32_t BandRows() const {
    const int32_t height = state_.resize.size[0];
    if (KeepsOutputRows()) return state_.resize.row_capacity;
    if (IsInPlace() ||
        state_.resize.row_capacity == state_.resize.window.height)
      return height;
    // Adjacent output rows come from adjacent or equal rows of the resize,
    // unless fill is between them.
    const float rows = static_cast<float>(state_.resize.row_capacity -
                                          state_.resize.num_taps[0] - 2) /
                       state_.resize.scale_y;
    if (rows >= static_cast<float>(height)) return height;
    return rows < 1.0f ? 1 : static_cast<int32_t>(rows);
  }

  // Prepares the rows needed by output rows first .. first + rows. The ranks
  // are synchronised before and after. Returns false if the work was stopped.
  DATASETD_HOST_DEVICE bool MakeRows(int32_t first, int32_t rows) {
    bool is_made = true;
    if constexpr (!Team::kHasVectors) {
      MakeRowsInBlock(first, rows);
    } else {
      is_made = VisitImageDtype(state_.image.dtype,
                                [&](auto dtype) DATASETD_TEAM_ATTR {
                                  return MakeRowsOf<dtype>(first, rows);
                                });
    }
    team_.Sync();
    return is_made;
  }

  // True if a CUDA thread's lanes are neighbours, else one of each quarter of a
  // row.
  DATASETD_HOST_DEVICE bool HasNeighbours() const {
    return !state_.resize.is_columns_first;
  }

  // Computes lanes. REQUIRES: their row is prepared and is not fill.
  DATASETD_HOST_DEVICE void MakeLanes(Lanes<Team>* lanes) {
    if constexpr (Team::kHasVectors) {
      const ResizedRow row = {state_.resize.clamp, nullptr, lanes->pixel[0],
                              Team::kLanes, false};
      const FinishedRow<Team, false> out = {row};
      if (state_.resize.is_columns_first) {
        if (lanes->count == state_.resize.size[1] && Halve(lanes->y, out)) {
          return;
        }
        MakeLine(lanes->y);
        SumLine<Team>(reach_, state_.memory.line, PlaneStride(),
                      state_.image.channels, Taps(1).From(lanes->first_x),
                      lanes->count, out);
      } else {
        SumRows<Team>(rows_, Taps(0), lanes->y, lanes->first_x, lanes->count,
                      state_.image.channels, out);
      }
    } else {
      MakeChannels(lanes, [&](auto& made, int first_c) {
        MakeBlock(*lanes, first_c, made);
      });
    }
  }

  // Writes a whole row directly to `out`, whose clamp is the resize's. For
  // teams with lanes. REQUIRES: as MakeLanes.
  void WriteRow(int32_t y, ResizedRow out) {
    out.clamp = state_.resize.clamp;
    out.is_streamed ? WriteRowTo(y, FinishedRow<Team, true>{out})
                    : WriteRowTo(y, FinishedRow<Team, false>{out});
  }

 private:
  DATASETD_HOST_DEVICE bool KeepsOutputRows() const {
    return !Team::kHasVectors && state_.resize.is_columns_first;
  }

  // True if the rows are read from the image itself.
  DATASETD_HOST_DEVICE bool IsInPlace() const {
    return Team::kHasVectors && state_.resize.is_columns_first &&
           state_.image.is_scratch;
  }

  // Returns the elements between the channels of a buffered row.
  DATASETD_HOST_DEVICE int64_t PlaneStride() const {
    return state_.resize.is_columns_first
               ? LineStride(state_.resize.window.width)
               : state_.resize.size[1];
  }

  // Returns the number of rows that fit: at least those of one output row, at
  // most all.
  DATASETD_HOST_DEVICE int32_t RowCapacity() const {
    int64_t elements = scratch_.row_elements;
    if (elements > Team::kRowElements) elements = Team::kRowElements;
    const int64_t rows = elements / (PlaneStride() * state_.image.channels);
    const int32_t least = KeepsOutputRows() ? 1 : state_.resize.num_taps[0];
    const int32_t most =
        KeepsOutputRows() ? state_.resize.size[0] : state_.resize.window.height;
    return rows > most    ? most
           : rows > least ? static_cast<int32_t>(rows)
           : least > most ? most
                          : least;
  }

  DATASETD_HOST_DEVICE int32_t* TapIndex(int axis) const {
    return state_.memory.indices +
           (axis == 0
                ? 0
                : int64_t{state_.resize.num_taps[0]} * state_.resize.size[0]);
  }
  DATASETD_HOST_DEVICE float* TapWeight(int axis) const {
    return state_.memory.weights +
           (axis == 0
                ? 0
                : int64_t{state_.resize.num_taps[0]} * state_.resize.size[0]);
  }
  DATASETD_HOST_DEVICE AxisTaps Taps(int axis) const {
    return {TapIndex(axis), TapWeight(axis), state_.resize.num_taps[axis],
            state_.resize.size[axis]};
  }

  template <Dtype kDtype>
  bool MakeRowsOf(int32_t first, int32_t rows) {
    if (IsInPlace()) {
      rows_ = {reinterpret_cast<const float*>(state_.image.data) +
                   state_.resize.window.left,
               state_.image.row_stride, state_.image.channel_stride, INT32_MAX,
               0};
      return true;
    }
    int32_t from, to;
    FindMissingRows(first, rows, &from, &to);
    for (int32_t row = from; row < to; ++row) {
      if (!team_.GoesOn()) return false;
      LoadRow<kDtype>(row);
    }
    return true;
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void MakeRowsInBlock(
      int32_t first, int32_t rows) {
    int32_t from = first;
    int32_t to = first + rows;
    if (state_.resize.is_columns_first) {
      rows_ = {state_.memory.rows, PlaneStride() * state_.image.channels,
               PlaneStride(), state_.resize.row_capacity, first};
    } else {
      FindMissingRows(first, rows, &from, &to);
    }
    SumImage(from, to);
  }

  // Finds the image rows from .. to that output rows first .. first + rows use
  // and that are not buffered yet, and moves rows_ to all that they use.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void FindMissingRows(int32_t first,
                                                                  int32_t rows,
                                                                  int32_t* from,
                                                                  int32_t* to) {
    FindRows(first, rows, from, to);
    rows_ = {state_.memory.rows, PlaneStride() * state_.image.channels,
             PlaneStride(), state_.resize.row_capacity,
             *from - *from % state_.resize.row_capacity};
    // Buffered rows stay in place: a row's position depends on its number only.
    const int32_t old_from = rows_from_;
    const int32_t old_to = rows_to_;
    rows_from_ = *from;
    rows_to_ = *to;
    if (*from >= old_from && *from < old_to) {
      *from = old_to;
    } else if (*to > old_from && *to <= old_to) {
      *to = old_from;
    }
  }

  // Finds the image rows from .. to that output rows first .. first + rows use.
  DATASETD_HOST_DEVICE void FindRows(int32_t first, int32_t rows, int32_t* from,
                                     int32_t* to) {
    if (team_.rank() == 0) {
      state_.rows_from = UINT32_MAX;
      state_.rows_to = 0;
    }
    team_.Sync();
    const int32_t* const low = TapIndex(0);
    const int32_t* const high =
        low + int64_t{state_.resize.num_taps[0] - 1} * state_.resize.size[0];
    for (int32_t y = first + team_.rank(); y < first + rows;
         y += team_.size()) {
      if (IsFill(state_.memory.map[y])) continue;
      Team::Atomics::Min(&state_.rows_from, static_cast<uint32_t>(low[y]));
      Team::Atomics::Max(&state_.rows_to, static_cast<uint32_t>(high[y] + 1));
    }
    team_.Sync();
    *from = state_.rows_to == 0 ? 0 : static_cast<int32_t>(state_.rows_from);
    *to = static_cast<int32_t>(state_.rows_to);
  }

  // Computes channels first_c .. first_c + kChannels of the lanes.
  template <int kChannels>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void MakeBlock(
      const Lanes<Team>& lanes, int32_t first_c,
      float (&sum)[kChannels][Team::kLanes]) const {
    const int64_t plane = first_c * rows_.plane_stride;
    if (state_.resize.is_columns_first) {
      SumBlockRow<kChannels, Team>(rows_.Row(lanes.y) + plane,
                                   rows_.plane_stride, Taps(1), lanes.first_x,
                                   {lanes.count, lanes.step, false}, sum);
    } else {
      SumBlockColumns<kChannels, Team>(
          rows_, Taps(0), lanes.y, plane + lanes.first_x,
          state_.resize.size[1] % Team::kLanes == 0, sum);
    }
    if (state_.resize.clamp > 0.0f) {
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        DATASETD_UNROLL
        for (int k = 0; k < Team::kLanes; ++k) {
          sum[c][k] = sum[c][k] < 0.0f ? 0.0f : sum[c][k];
          sum[c][k] =
              sum[c][k] > state_.resize.clamp ? state_.resize.clamp : sum[c][k];
        }
      }
    }
  }

  // Buffers image rows summed along, or output rows summed down, numbers from
  // .. to. For teams without vectors.
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumImage(int32_t from,
                                                           int32_t to) {
    const ElementKind kind = KindOf(state_.image);
    if (kind == ElementKind::kRgbBytes) {
      SumImageOf<ElementKind::kRgbBytes, 3>(from, to, 0);
    } else if (kind == ElementKind::kPlanes && state_.image.channels == 3) {
      SumImageOf<ElementKind::kPlanes, 3>(from, to, 0);
    } else {
      for (int c = 0; c < state_.image.channels; ++c) {
        SumImageOf<ElementKind::kAny, 1>(from, to, c);
      }
    }
  }

  template <ElementKind kKind, int kChannels>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumImageOf(int32_t from,
                                                             int32_t to,
                                                             int32_t first_c) {
    // Copies, which stores cannot alias.
    const ChainImage image = state_.image;
    const RowWindow window = rows_;
    const int32_t* const map_y = state_.memory.map;
    const bool is_columns_first = state_.resize.is_columns_first;
    const int32_t width =
        is_columns_first ? state_.resize.window.width : state_.resize.size[1];
    const AxisTaps taps = is_columns_first ? Taps(0) : Taps(1);
    const int32_t start = state_.resize.window.left * image.pixel_stride;
    float* const rows = state_.memory.rows + first_c * window.plane_stride;
    const int32_t blocks = (width + Team::kLanes - 1) / Team::kLanes;
    VisitRows(from, to, blocks, [&](int32_t row, int32_t block) {
      float sum[kChannels][Team::kLanes];
      LaneRun run = {Team::kLanes, 1, true};
      int32_t x = block;
      if (is_columns_first) {
        if (IsFill(map_y[row])) return;
        // Lanes beyond the row are stored between the planes.
        x *= Team::kLanes;
        const int32_t left = width - x;
        SumImageColumns<kKind, kChannels, Team>(
            image, start + x * image.pixel_stride, first_c, taps, row,
            left < Team::kLanes ? left : Team::kLanes, sum);
      } else {
        run = {CountOfQuarters<Team>(x, blocks, width), blocks, false};
        SumImageRow<kKind, kChannels, Team>(
            image, row * image.row_stride + start, first_c, taps, x, run, sum);
      }
      float* const put = rows + window.Offset(row) + x;
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        StoreFloats<Team>(sum[c], run, put + c * window.plane_stride);
      }
    });
  }

  // Calls visit(row, block) for rows from .. to and block < blocks, divided
  // among the ranks.
  template <typename Visit>
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void VisitRows(
      int32_t from, int32_t to, int32_t blocks, const Visit& visit) const {
    // Rows and blocks are incremented, which is cheaper than dividing.
    const int32_t step_rows = team_.size() / blocks;
    const int32_t step_blocks = team_.size() - step_rows * blocks;
    int32_t row = team_.rank() / blocks;
    int32_t block = team_.rank() - row * blocks;
    row += from;
    while (row < to) {
      visit(row, block);
      row += step_rows;
      block += step_blocks;
      if (block >= blocks) {
        block -= blocks;
        ++row;
      }
    }
  }

  // For teams with lanes: buffers a planar image row, summed along if that pass
  // is first.
  template <Dtype kDtype>
  void LoadRow(int32_t row) {
    float* const to = state_.memory.rows + rows_.Offset(row);
    const int64_t stride = LineStride(state_.resize.window.width);
    if (state_.resize.is_columns_first) {
      LoadLine<kDtype, Team>(state_.image, row, state_.resize.window.left,
                             state_.resize.window.width, stride, to);
      return;
    }
    const PlainRow<Team> out = {to, rows_.plane_stride};
    if (state_.image.is_scratch) {
      SumLine<Team>(reach_,
                    reinterpret_cast<const float*>(state_.image.data) +
                        int64_t{row} * state_.image.row_stride +
                        state_.resize.window.left,
                    state_.image.channel_stride, state_.image.channels, Taps(1),
                    state_.resize.size[1], out);
      return;
    }
    LoadLine<kDtype, Team>(state_.image, row, state_.resize.window.left,
                           state_.resize.window.width, stride,
                           state_.memory.line);
    SumLine<Team>(reach_, state_.memory.line, stride, state_.image.channels,
                  Taps(1), state_.resize.size[1], out);
  }

  // Sums output row y down its columns.
  void MakeLine(int32_t y) {
    if (line_y_ == y) return;
    line_y_ = y;
    SumRows<Team>(rows_, Taps(0), y, 0, state_.resize.window.width,
                  state_.image.channels,
                  PlainRow<Team>{state_.memory.line, PlaneStride()});
  }

  // Computes output row y if the width is halved, and the height to no less
  // than a half, which takes 3 or 4 taps; else returns false.
  template <typename Out>
  bool Halve(int32_t y, const Out& out) const {
    if (!halves_width_ || state_.image.dtype != Dtype::kUint8) return false;
    const int32_t channels = state_.image.channels;
    switch (state_.resize.num_taps[0]) {
      case 3:
        halving_.template Sum<3>(rows_, Taps(0), y, channels, out);
        return true;
      case 4:
        halving_.template Sum<4>(rows_, Taps(0), y, channels, out);
        return true;
      default:
        return false;
    }
  }

  template <typename Out>
  void WriteRowTo(int32_t y, const Out& out) {
    if (state_.resize.is_columns_first) {
      if (Halve(y, out)) return;
      MakeLine(y);
      SumLine<Team>(reach_, state_.memory.line, PlaneStride(),
                    state_.image.channels, Taps(1), state_.resize.size[1], out);
    } else {
      SumRows<Team>(rows_, Taps(0), y, 0, state_.resize.size[1],
                    state_.image.channels, out);
    }
  }

  Team team_;
  const ChainScratch& scratch_;
  ChainState& state_;

  // For teams with vectors: whether taps of an earlier resize exist,
  // and whether an axis' taps differ from this resize's at most by the map.
  bool has_taps_ = false;
  bool keeps_[2] = {};
  // Of the taps along rows, if is_reach_known_.
  TapReach reach_ = TapReach::kFar;
  bool halves_width_ = false;
  HalvingTaps<Team> halving_;
  bool is_reach_known_ = false;
  RowWindow rows_ = {};
  // Range of image rows in rows_.
  int32_t rows_from_ = 0;
  int32_t rows_to_ = 0;
  // Output row whose column sums are in memory.line, or -1.
  int32_t line_y_;
};

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
