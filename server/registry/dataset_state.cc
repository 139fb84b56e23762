#include "server/registry/dataset_state.h"

namespace datasetd {
namespace {

using enum Stage;
using E = StageEvent;

// A load that waits is dropped when it is cancelled; one that a worker has is
// stopped, and ends when the worker says so. What is not listed cannot happen.
constexpr StageChange kChanges[] = {
    {kAsked, E::kScanBegun, kScanning},
    {kAsked, E::kFailed, kFailed},
    {kAsked, E::kCancelled, kEnding, kDropWork},
    {kAsked, E::kDeviceLost, kEnding, kDropWork},

    {kScanning, E::kScanned, kPlanned},
    {kScanning, E::kFailed, kFailed},
    {kScanning, E::kEnded, kGone, kForget},
    {kScanning, E::kCancelled, kEnding, kStopWork},
    {kScanning, E::kDeviceLost, kEnding, kStopWork},

    {kPlanned, E::kReserved, kQueued},
    {kPlanned, E::kCancelled, kEnding, kDropWork},
    {kPlanned, E::kDeviceLost, kEnding, kDropWork},

    {kQueued, E::kReadBegun, kReading},
    {kQueued, E::kCancelled, kEnding, kEndChecks | kDropWork},
    {kQueued, E::kDeviceLost, kEnding, kEndChecks | kDropWork},

    {kReading, E::kRead, kReady},
    {kReading, E::kFailed, kFailed, kEndChecks},
    {kReading, E::kEnded, kGone, kForget | kEndChecks},
    {kReading, E::kCancelled, kEnding, kEndChecks | kStopWork},
    {kReading, E::kDeviceLost, kEnding, kEndChecks | kStopWork},

    {kEnding, E::kFailed, kFailed},
    {kEnding, E::kEnded, kGone, kForget},
    {kEnding, E::kCancelled, kEnding},
    {kEnding, E::kDeviceLost, kEnding},

    {kReady, E::kUnloaded, kGone, kForget | kEndChecks | kFreeMemory},
    {kReady, E::kForced, kUnloading, kEndChecks},
    {kReady, E::kEvicted, kGone, kForget | kEndChecks | kFreeMemory},
    {kReady, E::kDeviceLost, kFailed, kEndChecks},

    {kFailed, E::kUnloaded, kGone, kForget | kFreeMemory},
    {kFailed, E::kForced, kUnloading},
    {kFailed, E::kForgotten, kGone, kForget},

    {kUnloading, E::kForced, kUnloading},
    {kUnloading, E::kFeedsEnded, kGone, kForget | kFreeMemory},
};

}  // namespace

absl::Span<const StageChange> StageChanges() { return kChanges; }

std::optional<StageChange> ChangeOf(Stage from, StageEvent event) {
  for (const StageChange& change : kChanges) {
    if (change.from == from && change.event == event) return change;
  }
  return std::nullopt;
}

DatasetState StateOf(Stage stage) {
  switch (stage) {
    case kReady:
      return DatasetState::kReady;
    case kFailed:
    case kGone:
      return DatasetState::kFailed;
    case kUnloading:
      return DatasetState::kUnloading;
    default:
      return DatasetState::kLoading;
  }
}

}  // namespace datasetd
