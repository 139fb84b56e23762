// The life of a dataset in the registry: its stages, what may happen to it, and
// what each event does in each stage. dataset_state.cc has the table.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_STATE_H_
#define DATASETD_SERVER_REGISTRY_DATASET_STATE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "server/dataset/dataset_info.h"

namespace datasetd {

enum class Stage : uint8_t {
  kAsked,      // waits for a turn to look at its files
  kScanning,   // a worker looks at its files
  kPlanned,    // its files are known; waits until it has its memory
  kQueued,     // waits for a turn to be read
  kReading,    // a worker, or the call of a push, reads its samples
  kEnding,     // its load was cancelled; waits for the worker, and for what it
               // had to be freed
  kReady,      // its samples are resident
  kFailed,     // its error is kept under its name
  kUnloading,  // was unloaded by force; waits for its last feed to end
  kGone,       // is not in the table any more
};
inline constexpr int kNumStages = 10;

enum class StageEvent : uint8_t {
  kScanBegun,
  kScanned,    // its source is open and its load is planned
  kReserved,   // it has its memory
  kReadBegun,  // for a push, at once
  kRead,       // its samples are resident
  kFailed,     // an error that stays
  kEnded,      // an error that does not: it was cancelled, was not planned yet,
               // or is a push
  kCancelled,  // nobody holds it any more, or its load is unloaded
  kDeviceLost,  // a device that has, or was to have, samples has failed
  kUnloaded,    // with no feed open
  kForced,      // unloaded with feeds open
  kFeedsEnded,
  kEvicted,
  kForgotten,  // as one of many failures
};
inline constexpr int kNumStageEvents = 14;

// What goes with a change, a bit each; brought about in this order.
enum StageEffect : uint8_t {
  kForget = 1,     // take it out of the table
  kEndChecks = 2,  // end comparisons with it; calls that look at its files
                   // begin again
  kFreeMemory = 4,
  kStopWork = 8,   // tell the worker, or the push, to end soon
  kDropWork = 16,  // take it out of its queue, and free what it has
};

struct StageChange {
  Stage from;
  StageEvent event;
  Stage to;
  uint8_t effects = 0;  // StageEffect
};

// All changes there are.
absl::Span<const StageChange> StageChanges();

// Returns what the event does to a dataset; nothing if it cannot happen in this
// stage.
std::optional<StageChange> ChangeOf(Stage from, StageEvent event);

// What clients see.
DatasetState StateOf(Stage stage);

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_STATE_H_
