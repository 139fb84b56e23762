#include "client/connection/unary_call.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace datasetd::client {
namespace {

constexpr absl::Duration kShortestPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);
// With less time left the refusal is the answer: an attempt that its deadline
// ends would say less.
constexpr absl::Duration kShortestAttempt = absl::Seconds(1);

constexpr char kBrokenOff[] = "waiting for the daemon's answer was broken off";

// As the daemon's CallGuard says it.
bool IsRefusedForNow(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         absl::StartsWith(status.error_message(),
                          "this user has too many calls at a time");
}

}  // namespace

void AwaitCall(grpc::CompletionQueue* queue, grpc::ClientContext* context,
               const CallLimits& limits, grpc::Status* status) {
  const auto interval = absl::ToChronoMilliseconds(kWaitInterval);
  void* tag;
  bool is_ok;
  while (queue->AsyncNext(&tag, &is_ok,
                          std::chrono::system_clock::now() + interval) ==
         grpc::CompletionQueue::TIMEOUT) {
    if (!limits.MayGoOn()) {
      context->TryCancel();
      queue->Next(&tag, &is_ok);
      if (!status->ok()) {
        *status = {grpc::StatusCode::CANCELLED, kBrokenOff};
      }
      break;
    }
  }
  queue->Shutdown();
  while (queue->Next(&tag, &is_ok)) {
  }
}

CallAttempts::CallAttempts(const CallLimits& limits)
    : limits_(limits),
      deadline_(absl::Now() + limits.timeout),
      pause_(kShortestPause) {}

absl::Duration CallAttempts::remaining() const {
  return deadline_ - absl::Now();
}

bool CallAttempts::ShouldRetry(grpc::Status* status) {
  if (!IsRefusedForNow(*status) || remaining() < pause_ + kShortestAttempt) {
    return false;
  }
  absl::SleepFor(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  if (limits_.MayGoOn()) return true;
  *status = {grpc::StatusCode::CANCELLED, kBrokenOff};
  return false;
}

}  // namespace datasetd::client
