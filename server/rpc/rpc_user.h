// The gate's record of a user: connections, calls, rate limits and the turns of
// the user's connections. Not thread-safe.

#ifndef DATASETD_SERVER_RPC_RPC_USER_H_
#define DATASETD_SERVER_RPC_RPC_USER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/token_bucket.h"

namespace datasetd {

class RpcUser {
 public:
  RpcUser(uint32_t uid, absl::Duration now)
      : uid(uid),
        abandoned_(kAbandonedBurst, kAbandonedPerSecond, now),
        arrivals_(kArrivalBurst, kArrivalsPerSecond, now) {}

  // Charges abandoned calls.
  void ChargeAbandoned(int count, absl::Duration now) {
    if (count > 0) Charge(count, abandoned_, now);
  }
  // Charges a connection that is passed to gRPC.
  void ChargeArrival(absl::Duration now) { Charge(1, arrivals_, now); }

  // True while a rate limit is exceeded.
  bool IsPaused(absl::Duration now) const { return now < paused_until_; }
  // Empty if `event` was logged less than a minute ago; otherwise the number of
  // times it was suppressed since it was last logged.
  std::optional<uint64_t> TakeLogLine(const std::string& event,
                                      absl::Duration now) {
    const auto [found, is_new] = logged_.try_emplace(event, LogWindow{now, 0});
    LogWindow& window = found->second;
    if (!is_new && now - window.logged < kLogWindow) {
      ++window.num_left_out;
      return std::nullopt;
    }
    const uint64_t num_left_out = window.num_left_out;
    window = {now, 0};
    return num_left_out;
  }

  // True if the record holds no state and can be dropped.
  bool IsForgotten(absl::Duration now) {
    return num_connections == 0 && !is_ready && abandoned_.IsFull(now) &&
           arrivals_.IsFull(now) &&
           std::all_of(logged_.begin(), logged_.end(),
                       [now](const auto& event) {
                         return now - event.second.logged > kLogWindow;
                       });
  }

  const uint32_t uid;
  // Set by the gate.
  int num_connections = 0;
  int num_streams = 0;
  std::deque<uint64_t> ready;  // connections in the order of their turns
  bool is_ready = false;       // in the list of users who have turns
  std::vector<uint64_t> held;  // connections with bytes that wait for gRPC
  // The one connection that may open more calls than the user may, since the
  // rest of an open call of it comes behind them.
  static constexpr uint64_t kNobody = UINT64_MAX;
  uint64_t exempt = kNobody;

 private:
  // Limits on abandoned calls that gRPC may not have cleaned up yet.
  static constexpr double kAbandonedBurst = 64;
  static constexpr double kAbandonedPerSecond = 64;
  static constexpr double kArrivalBurst = 512;
  static constexpr double kArrivalsPerSecond = 200;
  static constexpr absl::Duration kLogWindow = absl::Minutes(1);

  struct LogWindow {
    absl::Duration logged;
    uint64_t num_left_out = 0;
  };

  void Charge(int count, TokenBucket& bucket, absl::Duration now) {
    if (bucket.Take(count, now)) return;
    paused_until_ = std::max(paused_until_, now + bucket.TimeToPay(now));
  }

  TokenBucket abandoned_;
  TokenBucket arrivals_;
  absl::Duration paused_until_ = -absl::InfiniteDuration();
  std::map<std::string, LogWindow> logged_;  // by event
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_USER_H_
