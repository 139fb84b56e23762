#include "server/log/log_limiter.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace datasetd {
namespace {

// Stands for users above max_users; not a valid uid.
constexpr uint32_t kOtherUsers = std::numeric_limits<uint32_t>::max();

}  // namespace

void LogLimiter::Refill(Allowance& allowance, double per_minute,
                        absl::Duration now) {
  const double minutes = absl::ToDoubleMinutes(now - allowance.updated);
  allowance.left = std::min(per_minute, allowance.left + minutes * per_minute);
  allowance.updated = now;
}

LogLimiter::User& LogLimiter::FindUser(uint32_t uid, absl::Duration now) {
  auto found = users_.find(uid);
  if (found == users_.end()) {
    if (users_.size() >= options_.max_users) ForgetQuietUsers(now);
    if (users_.size() >= options_.max_users) uid = kOtherUsers;
    found =
        users_.try_emplace(uid, User{.bytes = {options_.bytes_per_minute, now}})
            .first;
  }
  Refill(found->second.bytes, options_.bytes_per_minute, now);
  return found->second;
}

void LogLimiter::ForgetQuietUsers(absl::Duration now) {
  for (auto it = users_.begin(); it != users_.end();) {
    User& user = it->second;
    Refill(user.bytes, options_.bytes_per_minute, now);
    bool is_quiet = user.bytes.left >= options_.bytes_per_minute;
    for (auto& [name, kind] : user.kinds) {
      Refill(kind.lines, options_.lines_per_minute, now);
      is_quiet = is_quiet && kind.num_left_out == 0 &&
                 kind.lines.left >= options_.lines_per_minute;
    }
    it = is_quiet ? users_.erase(it) : std::next(it);
  }
}

LogLimiter::Verdict LogLimiter::Admit(uint32_t uid, absl::string_view name) {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  User& user = FindUser(uid, now);
  auto found = user.kinds.find(name);
  if (found == user.kinds.end()) {
    found = user.kinds
                .try_emplace(std::string(name),
                             Kind{.lines = {options_.lines_per_minute, now}})
                .first;
  }
  Kind& kind = found->second;
  Refill(kind.lines, options_.lines_per_minute, now);
  if (kind.lines.left < 1 || user.bytes.left <= 0) {
    ++kind.num_left_out;
    return {};
  }
  kind.lines.left -= 1;
  return {.is_admitted = true,
          .num_left_out = std::exchange(kind.num_left_out, 0)};
}

void LogLimiter::Charge(uint32_t uid, size_t size_bytes) {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  FindUser(uid, now).bytes.left -= static_cast<double>(size_bytes);
}

std::vector<LogLimiter::LeftOut> LogLimiter::TakeLeftOut() {
  std::vector<LeftOut> left_out;
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  for (auto& [uid, user] : users_) {
    Refill(user.bytes, options_.bytes_per_minute, now);
    if (user.bytes.left <= 0) continue;
    for (auto& [name, kind] : user.kinds) {
      Refill(kind.lines, options_.lines_per_minute, now);
      if (kind.num_left_out == 0 || kind.lines.left < 1) continue;
      kind.lines.left -= 1;
      left_out.push_back({.uid = uid,
                          .kind = name,
                          .num_lines = std::exchange(kind.num_left_out, 0)});
    }
  }
  return left_out;
}

}  // namespace datasetd
