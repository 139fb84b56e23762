#include "server/dataset/decode_budget.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// After so long a wait sees that it was cancelled.
constexpr absl::Duration kCancelPeriod = absl::Milliseconds(100);

DecodeBudget::Limits Sane(DecodeBudget::Limits limits) {
  limits.total_bytes = std::max(limits.total_bytes, limits.sample_bytes);
  return limits;
}

}  // namespace

DecodeBudget::DecodeBudget(const Limits& limits)
    : limits_(Sane(limits)),
      user_bytes_(std::max(limits_.total_bytes / 2, limits_.sample_bytes)) {}

int64_t DecodeBudget::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

int64_t DecodeBudget::peak_bytes() const {
  MutexLock lock(&mutex_);
  return peak_bytes_;
}

absl::Status DecodeBudget::CheckSample(int64_t size_bytes) const {
  if (size_bytes <= limits_.sample_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "it takes ", size_bytes,
      " bytes of host memory to decode and transform, "
      "and max_sample_memory_mib of the daemon's configuration is ",
      limits_.sample_bytes >> 20,
      ": use smaller images, or begin the pretransforms with a Resize"));
}

bool DecodeBudget::FitsUser(uid_t uid, int64_t size_bytes) const {
  const auto used = used_by_user_.find(uid);
  const int64_t used_bytes = used == used_by_user_.end() ? 0 : used->second;
  return size_bytes <= user_bytes_ - used_bytes;
}

void DecodeBudget::Add(uid_t uid, int64_t size_bytes) {
  used_bytes_ += size_bytes;
  used_by_user_[uid] += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

void DecodeBudget::Serve() {
  // Users whose next sample waits for the user's own samples.
  std::set<uid_t> waiting;
  for (Waiter& waiter : waiters_) {
    if (waiter.is_served || waiting.contains(waiter.uid)) continue;
    if (!FitsUser(waiter.uid, waiter.size_bytes)) {
      waiting.insert(waiter.uid);
      continue;
    }
    if (!FitsAll(waiter.size_bytes)) return;
    Add(waiter.uid, waiter.size_bytes);
    waiter.is_served = true;
  }
}

absl::Status DecodeBudget::Share::Take(int64_t size_bytes,
                                       const std::atomic<bool>* is_cancelled) {
  if (budget_ == nullptr) return absl::OkStatus();
  DecodeBudget& budget = *budget_;
  DATASETD_RETURN_IF_ERROR(budget.CheckSample(size_bytes));
  size_bytes = std::max<int64_t>(size_bytes, 1);
  MutexLock lock(&budget.mutex_);
  const auto waiter = budget.waiters_.insert(
      budget.waiters_.end(), {.uid = uid_, .size_bytes = size_bytes});
  budget.Serve();
  const auto is_wanted = [is_cancelled] {
    return is_cancelled == nullptr ||
           !is_cancelled->load(std::memory_order_relaxed);
  };
  while (is_wanted() && !budget.mutex_.AwaitWithTimeout(
                            Condition(&waiter->is_served), kCancelPeriod)) {
  }
  const bool is_served = waiter->is_served;
  budget.waiters_.erase(waiter);
  if (!is_served) {
    budget.Serve();  // those behind it
    return absl::CancelledError(
        "the load was cancelled while it waited for host memory");
  }
  size_bytes_ = size_bytes;
  return absl::OkStatus();
}

absl::StatusOr<bool> DecodeBudget::Share::TryGrowTo(int64_t size_bytes) {
  if (budget_ == nullptr) return true;
  DecodeBudget& budget = *budget_;
  DATASETD_RETURN_IF_ERROR(budget.CheckSample(size_bytes));
  const int64_t missing = size_bytes - size_bytes_;
  if (missing <= 0) return true;
  MutexLock lock(&budget.mutex_);
  if (!budget.FitsUser(uid_, missing) || !budget.FitsAll(missing)) return false;
  budget.Add(uid_, missing);
  size_bytes_ = size_bytes;
  return true;
}

void DecodeBudget::Share::Release() {
  if (size_bytes_ == 0) return;
  DecodeBudget& budget = *budget_;
  MutexLock lock(&budget.mutex_);
  budget.used_bytes_ -= size_bytes_;
  const auto used = budget.used_by_user_.find(uid_);
  used->second -= size_bytes_;
  if (used->second == 0) budget.used_by_user_.erase(used);
  size_bytes_ = 0;
  budget.Serve();
}

}  // namespace datasetd
