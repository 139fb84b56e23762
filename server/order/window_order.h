// The first steps of a feed's windows of a stream (v1::WindowOrder). Those of
// an epoch are a function of (options, seed, epoch). docs/randomness.md has the
// formulas.
//
// Pure; thread-safe.

#ifndef DATASETD_SERVER_ORDER_WINDOW_ORDER_H_
#define DATASETD_SERVER_ORDER_WINDOW_ORDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd {

struct WindowPlan {
  // What a window needs of the stream: its length, and the largest shift.
  int64_t num_steps = 1;
  uint64_t num_starts = 0;   // steps at which a window can begin; at least 1
  uint64_t num_windows = 0;  // per epoch; 0 where the client makes the order
  bool is_random = false;    // each start is drawn by itself
  uint64_t stride = 0;       // of blocks
  // Of blocks: the first window begins at `phase`, or, if num_phases is above
  // 1, at a step below num_phases that is drawn for each epoch.
  uint64_t phase = 0;
  uint64_t num_phases = 1;
};

// Plans the windows of a dataset of `stream_steps` samples, at least one.
// REQUIRES: `order` is of options that CheckFeedOptions accepts.
//   INVALID_ARGUMENT  a window does not fit into the stream, the phase is
//                     behind its end, or there are too many windows
absl::StatusOr<WindowPlan> PlanWindows(const v1::WindowOrder& order,
                                       bool shuffle, int64_t largest_shift,
                                       int64_t stream_steps,
                                       const std::string& dataset);

// Makes first steps of the numbers of blocks.
void PlaceBlocks(const WindowPlan& plan, uint64_t seed, uint64_t epoch,
                 absl::Span<int64_t> windows);

// Writes the first steps of the random windows `first`, `first` + `step`, ...
void DrawStarts(const WindowPlan& plan, uint64_t seed, uint64_t epoch,
                uint64_t first, uint64_t step, absl::Span<int64_t> starts);

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_WINDOW_ORDER_H_
