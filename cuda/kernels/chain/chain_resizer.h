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
// Everything is a template over the team (chain_executor.h).

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_resize.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

template <typename Team>
class ChainResizer {
 public:
  // All arguments must outlive this.
  DATASETD_HOST_DEVICE ChainResizer(const Team& team,
                                    const ChainScratch& scratch,
                                    const ChainMemory& memory,
                                    ChainState& state)
      : team_(team), scratch_(scratch), memory_(memory), state_(state) {}

  // Begins the resize `drawn` of `image`, whose output is moved to height x
  // width: output coordinate i of an axis is coordinate map_y[i] or map_x[i] of
  // the resize, or fill. All ranks call it and every other method except
  // MakeLanes and MakeTaps. After it, one rank per coordinate calls MakeTaps,
  // unless KeepsTaps is true for the axis and its map is unchanged.
  DATASETD_HOST_DEVICE void Begin(const ChainImage& image,
                                  const ResizeParams& params,
                                  const StepDraw& drawn, int32_t height,
                                  int32_t width, const int32_t* map_y) {
    const ResizeDraw& window = drawn.As<ResizeDraw>();
    const AxisResample axis_y = {window.height, drawn.out_height,
                                 params.interpolation, params.antialias};
    const AxisResample axis_x = {window.width, drawn.out_width,
                                 params.interpolation, params.antialias};
    const int32_t num_taps_y = NumTaps(axis_y);
    if constexpr (Team::kTakesRowsInTurn) {
      const bool is_same = has_taps_ && size_[0] == height && size_[1] == width;
      keeps_[0] = is_same && axis_[0] == axis_y && window_.top == window.top;
      keeps_[1] = is_same && axis_[1] == axis_x && num_taps_[0] == num_taps_y;
      has_taps_ = true;
    }
    image_ = image;
    window_ = window;
    size_[0] = height;
    size_[1] = width;
    map_y_ = map_y;
    clamp_ = params.clamp;
    scale_y_ = static_cast<float>(window_.height) / drawn.out_height;
    is_columns_first_ = window_.height > drawn.out_height;
    axis_[0] = axis_y;
    axis_[1] = axis_x;
    num_taps_[0] = num_taps_y;
    num_taps_[1] = NumTaps(axis_x);
    row_capacity_ = RowCapacity();
    DATASETD_CHECK_BOUND(int64_t{num_taps_[0]} * size_[0] +
                             int64_t{num_taps_[1]} * size_[1] <=
                         scratch_.tap_elements);
    DATASETD_CHECK_BOUND(IsInPlace() ||
                         row_capacity_ * PlaneStride() * image_.channels <=
                             scratch_.row_elements);
    DATASETD_CHECK_BOUND(LineStride(window_.width) * image_.channels <=
                         scratch_.line_elements);
    rows_from_ = rows_to_ = 0;
    line_y_ = -1;
  }

  // True if the taps of the previous resize are valid for this axis, given an
  // equal map.
  DATASETD_HOST_DEVICE bool KeepsTaps(int axis) const {
    return Team::kTakesRowsInTurn && keeps_[axis];
  }

  // Invalidates the taps, because the maps are overwritten.
  DATASETD_HOST_DEVICE void ForgetTaps() { has_taps_ = false; }

  DATASETD_HOST_DEVICE AxisTapMaker TapMaker(int axis) const {
    return AxisTapMaker(axis_[axis]);
  }

  // Computes the taps of output coordinate i of an axis, whose map entry is
  // `entry`.
  DATASETD_HOST_DEVICE void MakeTaps(const AxisTapMaker& maker, int axis,
                                     int32_t i, int32_t entry) {
    int32_t* const index = TapIndex(axis) + i;
    maker.Make(IsFill(entry) ? 0 : entry, size_[axis], index,
               TapWeight(axis) + i);
    if (axis == 1) {
      is_reach_known_ = false;
      return;
    }
    // Vertical taps index rows of the image, horizontal taps columns of the
    // window.
    for (int32_t t = 0; t < num_taps_[0]; ++t) {
      index[int64_t{t} * size_[0]] += window_.top;
    }
  }

  // Call after all taps are computed and the ranks are synchronised.
  DATASETD_HOST_DEVICE void FinishTaps() {
    if constexpr (Team::kLanes > 1) {
      if (!is_reach_known_) reach_ = ReachOf<Team>(Taps(1), size_[1]);
      is_reach_known_ = true;
    }
  }

  // Returns the number of output rows that one MakeRows can serve.
  DATASETD_HOST_DEVICE int32_t BandRows() const {
    const int32_t height = size_[0];
    if (KeepsOutputRows()) return row_capacity_;
    if (IsInPlace() || row_capacity_ == window_.height) return height;
    // Adjacent output rows come from adjacent or equal rows of the resize,
    // unless fill is between them.
    const float rows =
        static_cast<float>(row_capacity_ - num_taps_[0] - 2) / scale_y_;
    if (rows >= static_cast<float>(height)) return height;
    return rows < 1.0f ? 1 : static_cast<int32_t>(rows);
  }

  // Prepares the rows needed by output rows first .. first + rows. The ranks
  // are synchronised before and after. Returns false if the work was stopped.
  DATASETD_HOST_DEVICE bool MakeRows(int32_t first, int32_t rows) {
    bool is_made = true;
    switch (image_.dtype) {
      case Dtype::kUint8:
        is_made = MakeRowsOf<Dtype::kUint8>(first, rows);
        break;
      case Dtype::kFloat16:
        is_made = MakeRowsOf<Dtype::kFloat16>(first, rows);
        break;
      case Dtype::kBfloat16:
        is_made = MakeRowsOf<Dtype::kBfloat16>(first, rows);
        break;
      default:
        is_made = MakeRowsOf<Dtype::kFloat32>(first, rows);
        break;
    }
    team_.Sync();
    return is_made;
  }

  // Computes lanes. REQUIRES: their row is prepared and is not fill.
  DATASETD_HOST_DEVICE void MakeLanes(Lanes<Team>* lanes) {
    if constexpr (Team::kLanes > 1) {
      const ResizedRow row = {clamp_, nullptr, lanes->pixel[0], Team::kLanes,
                              false};
      const FinishedRow<Team, false> out = {row};
      if (is_columns_first_) {
        MakeLine(lanes->y);
        SumLine<Team>(reach_, memory_.line, PlaneStride(), image_.channels,
                      Taps(1).From(lanes->first_x), lanes->count, out);
      } else {
        SumRows<Team>(rows_, Taps(0), lanes->y, lanes->first_x, lanes->count,
                      image_.channels, out);
      }
    } else {
      VisitChannels(lanes->channels, [&](auto count, int first_c) {
        MakePixel<count()>(first_c, lanes);
      });
    }
  }

  // Writes a whole row directly to `out`, whose clamp is the resize's. For
  // teams with lanes. REQUIRES: as MakeLanes.
  void WriteRow(int32_t y, ResizedRow out) {
    out.clamp = clamp_;
    out.is_streamed ? WriteRowTo(y, FinishedRow<Team, true>{out})
                    : WriteRowTo(y, FinishedRow<Team, false>{out});
  }

 private:
  DATASETD_HOST_DEVICE bool KeepsOutputRows() const {
    return Team::kLanes == 1 && is_columns_first_;
  }

  // True if the rows are read from the image itself.
  DATASETD_HOST_DEVICE bool IsInPlace() const {
    return Team::kLanes > 1 && is_columns_first_ && image_.is_scratch;
  }

  // Returns the elements between the channels of a buffered row.
  DATASETD_HOST_DEVICE int64_t PlaneStride() const {
    return is_columns_first_ ? LineStride(window_.width) : size_[1];
  }

  // Returns the number of rows that fit, at least those of one output row.
  DATASETD_HOST_DEVICE int32_t RowCapacity() const {
    int64_t elements = scratch_.row_elements;
    if (elements > Team::kRowElements) elements = Team::kRowElements;
    const int64_t rows = elements / (PlaneStride() * image_.channels);
    const int32_t least = KeepsOutputRows() ? 1 : num_taps_[0];
    const int32_t most = KeepsOutputRows() ? size_[0] : window_.height;
    return rows < least  ? least
           : rows > most ? most
                         : static_cast<int32_t>(rows);
  }

  DATASETD_HOST_DEVICE int32_t* TapIndex(int axis) const {
    return memory_.indices + (axis == 0 ? 0 : int64_t{num_taps_[0]} * size_[0]);
  }
  DATASETD_HOST_DEVICE float* TapWeight(int axis) const {
    return memory_.weights + (axis == 0 ? 0 : int64_t{num_taps_[0]} * size_[0]);
  }
  DATASETD_HOST_DEVICE AxisTaps Taps(int axis) const {
    return {TapIndex(axis), TapWeight(axis), num_taps_[axis], size_[axis]};
  }

  template <Dtype kDtype>
  DATASETD_HOST_DEVICE bool MakeRowsOf(int32_t first, int32_t rows) {
    const int64_t row_stride = PlaneStride() * image_.channels;
    if (KeepsOutputRows()) {
      rows_ = {memory_.rows, row_stride, PlaneStride(), row_capacity_, first};
      VisitChannels(image_.channels, [&](auto count, int first_c) {
        SumImageColumns<kDtype, count()>(first, first + rows, first_c);
      });
      return true;
    }
    if (IsInPlace()) {
      rows_ = {reinterpret_cast<const float*>(image_.data) + window_.left,
               image_.row_stride, image_.channel_stride, INT32_MAX, 0};
      return true;
    }
    int32_t from, to;
    FindRows(first, rows, &from, &to);
    rows_ = {memory_.rows, row_stride, PlaneStride(), row_capacity_,
             from - from % row_capacity_};
    // Buffered rows stay in place: a row's position depends on its number only.
    const int32_t old_from = rows_from_;
    const int32_t old_to = rows_to_;
    rows_from_ = from;
    rows_to_ = to;
    if (from >= old_from && from < old_to) {
      from = old_to;
    } else if (to > old_from && to <= old_to) {
      to = old_from;
    }
    if constexpr (Team::kLanes == 1) {
      VisitChannels(image_.channels, [&](auto count, int first_c) {
        SumImageRows<kDtype, count()>(from, to, first_c);
      });
    } else {
      for (int32_t row = from; row < to; ++row) {
        if (!team_.GoesOn()) return false;
        LoadRow<kDtype>(row);
      }
    }
    return true;
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
    const int32_t* const high = low + int64_t{num_taps_[0] - 1} * size_[0];
    for (int32_t y = first + team_.rank(); y < first + rows;
         y += team_.size()) {
      if (IsFill(map_y_[y])) continue;
      Team::Atomics::Min(&state_.rows_from, static_cast<uint32_t>(low[y]));
      Team::Atomics::Max(&state_.rows_to, static_cast<uint32_t>(high[y] + 1));
    }
    team_.Sync();
    *from = state_.rows_to == 0 ? 0 : static_cast<int32_t>(state_.rows_from);
    *to = static_cast<int32_t>(state_.rows_to);
  }

  DATASETD_HOST_DEVICE int64_t WindowStart(int c) const {
    return int64_t{window_.left} * image_.pixel_stride +
           c * image_.channel_stride;
  }

  // Computes the first lane of channels first_c .. first_c + kChannels.
  template <int kChannels>
  DATASETD_HOST_DEVICE void MakePixel(int32_t first_c,
                                      Lanes<Team>* lanes) const {
    const int64_t plane = first_c * rows_.plane_stride;
    float sum[kChannels] = {};
    if (is_columns_first_) {
      SumOfRow(rows_.Row(lanes->y) + plane, rows_.plane_stride, Taps(1),
               lanes->first_x, sum);
    } else {
      SumOfRows(rows_, Taps(0), lanes->y, plane + lanes->first_x, sum);
    }
    if (clamp_ > 0.0f) {
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        sum[c] = sum[c] < 0.0f ? 0.0f : sum[c];
        sum[c] = sum[c] > clamp_ ? clamp_ : sum[c];
      }
    }
    SetPixel(sum, first_c, lanes);
  }

  // Calls visit(row, x) for rows from .. to and x < width, divided among the
  // ranks.
  template <typename Visit>
  DATASETD_HOST_DEVICE void VisitRows(int32_t from, int32_t to, int32_t width,
                                      const Visit& visit) const {
    // Rows and columns are incremented, which is cheaper than dividing.
    const int32_t step_rows = team_.size() / width;
    const int32_t step_x = team_.size() - step_rows * width;
    int32_t row = team_.rank() / width;
    int32_t x = team_.rank() - row * width;
    row += from;
    while (row < to) {
      visit(row, x);
      row += step_rows;
      x += step_x;
      if (x >= width) {
        x -= width;
        ++row;
      }
    }
  }

  // Buffers image rows summed along.
  template <Dtype kDtype, int kChannels>
  DATASETD_HOST_DEVICE void SumImageRows(int32_t from, int32_t to,
                                         int32_t first_c) {
    const AxisTaps taps = Taps(1);
    const int64_t start = WindowStart(first_c);
    VisitRows(from, to, size_[1], [&](int32_t row, int32_t x) {
      float sum[kChannels] = {};
      SumOfImage<kDtype>(image_, int64_t{row} * image_.row_stride + start,
                         image_.pixel_stride, taps, x, sum);
      PutSums(row, first_c, x, sum);
    });
  }

  // Buffers output rows summed down.
  template <Dtype kDtype, int kChannels>
  DATASETD_HOST_DEVICE void SumImageColumns(int32_t from, int32_t to,
                                            int32_t first_c) {
    const AxisTaps taps = Taps(0);
    const int64_t start = WindowStart(first_c);
    VisitRows(from, to, window_.width, [&](int32_t y, int32_t x) {
      if (IsFill(map_y_[y])) return;
      float sum[kChannels] = {};
      SumOfImage<kDtype>(image_, start + int64_t{x} * image_.pixel_stride,
                         image_.row_stride, taps, y, sum);
      PutSums(y, first_c, x, sum);
    });
  }

  // Buffers the sums of column x of a row, for channels from first_c on.
  template <int kChannels>
  DATASETD_HOST_DEVICE void PutSums(int32_t row, int32_t first_c, int32_t x,
                                    const float (&sum)[kChannels]) {
    float* const to = memory_.rows + rows_.Offset(row) + x;
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      to[(first_c + c) * rows_.plane_stride] = sum[c];
    }
  }

  // For teams with lanes: buffers a planar image row, summed along if that pass
  // is first.
  template <Dtype kDtype>
  void LoadRow(int32_t row) {
    float* const to = memory_.rows + rows_.Offset(row);
    const int64_t stride = LineStride(window_.width);
    if (is_columns_first_) {
      LoadLine<kDtype, Team>(image_, row, window_.left, window_.width, stride,
                             to);
      return;
    }
    const PlainRow<Team> out = {to, rows_.plane_stride};
    if (image_.is_scratch) {
      SumLine<Team>(reach_,
                    reinterpret_cast<const float*>(image_.data) +
                        int64_t{row} * image_.row_stride + window_.left,
                    image_.channel_stride, image_.channels, Taps(1), size_[1],
                    out);
      return;
    }
    LoadLine<kDtype, Team>(image_, row, window_.left, window_.width, stride,
                           memory_.line);
    SumLine<Team>(reach_, memory_.line, stride, image_.channels, Taps(1),
                  size_[1], out);
  }

  // Sums output row y down its columns.
  void MakeLine(int32_t y) {
    if (line_y_ == y) return;
    line_y_ = y;
    SumRows<Team>(rows_, Taps(0), y, 0, window_.width, image_.channels,
                  PlainRow<Team>{memory_.line, PlaneStride()});
  }

  template <typename Out>
  void WriteRowTo(int32_t y, const Out& out) {
    if (is_columns_first_) {
      MakeLine(y);
      SumLine<Team>(reach_, memory_.line, PlaneStride(), image_.channels,
                    Taps(1), size_[1], out);
    } else {
      SumRows<Team>(rows_, Taps(0), y, 0, size_[1], image_.channels, out);
    }
  }

  Team team_;
  const ChainScratch& scratch_;
  const ChainMemory& memory_;
  ChainState& state_;

  ChainImage image_;
  ResizeDraw window_ = {};
  int32_t size_[2] = {};  // of the output
  const int32_t* map_y_;
  float clamp_;
  float scale_y_;
  bool is_columns_first_;
  AxisResample axis_[2] = {};
  int32_t num_taps_[2] = {};
  // For teams with kTakesRowsInTurn: whether taps of an earlier resize exist,
  // and whether an axis' taps differ from this resize's at most by the map.
  bool has_taps_ = false;
  bool keeps_[2] = {};
  int32_t row_capacity_;
  TapReach reach_ = TapReach::kFar;
  bool is_reach_known_ = false;
  RowWindow rows_ = {};
  // Range of image rows in rows_.
  int32_t rows_from_, rows_to_;
  // Output row whose column sums are in memory_.line, or -1.
  int32_t line_y_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_RESIZER_H_
