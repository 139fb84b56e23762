#include "server/systemd/watchdog.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr int kChecksPerInterval = 3;

}  // namespace

absl::Duration Watchdog::IntervalFromEnvironment() {
  const char* const process = std::getenv("WATCHDOG_PID");
  if (process != nullptr && absl::StrCat(getpid()) != process) {
    return absl::InfiniteDuration();
  }
  const char* const text = std::getenv("WATCHDOG_USEC");
  int64_t microseconds = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &microseconds) ||
      microseconds <= 0) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(microseconds);
}

Watchdog::Watchdog(absl::Duration interval, const Clock* clock)
    : period_(interval / kChecksPerInterval),
      clock_(clock),
      next_(clock->Monotonic()) {}

absl::Duration Watchdog::TimeToNext() const {
  if (period_ == absl::InfiniteDuration()) return period_;
  return next_ - clock_->Monotonic();
}

absl::Status Watchdog::Check(
    const std::map<std::string, ProducerProgress>& progress) {
  next_ = clock_->Monotonic() + period_;
  absl::Status status;
  for (const auto& [device, now] : progress) {
    const auto before = last_.find(device);
    if (now.num_pings_answered < now.num_pings) {
      status.Update(absl::DeadlineExceededError(
          absl::StrCat("the producer of ", device, " has not answered for ",
                       absl::FormatDuration(period_),
                       ": its thread is stuck, most likely in the driver")));
    } else if (before != last_.end() && before->second.has_running_launch &&
               now.has_running_launch &&
               before->second.num_launches_ended == now.num_launches_ended &&
               before->second.num_pieces == now.num_pieces) {
      status.Update(absl::DeadlineExceededError(absl::StrCat(
          "nothing that was launched on ", device, " has ended for ",
          absl::FormatDuration(period_), ": the device hangs")));
    }
  }
  last_ = progress;
  return status;
}

}  // namespace datasetd
