#include "server/dataset/memory_budget.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/require.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// Holdings named in an error; the others are counted.
constexpr size_t kMaxNamedHoldings = 4;

// For example "1.5 GiB (1610612736 bytes)".
std::string Bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB",
                                           "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return absl::StrFormat("%.1f %s (%d bytes)", value, kUnits[unit], bytes);
}

}  // namespace

const char* MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDataset:
      return "dataset";
    case MemoryKind::kSlab:
      return "slab";
    case MemoryKind::kScratch:
      return "scratch";
    case MemoryKind::kText:
      return "text";
  }
  return "?";
}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), id_(other.id_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

Reservation::~Reservation() { Release(); }

void Reservation::Release() {
  if (budget_ == nullptr) return;
  std::exchange(budget_, nullptr)->Return(id_);
}

MemoryBudget::~MemoryBudget() {
  MutexLock lock(&mutex_);
  Require(holdings_.empty(), "a memory budget outlives its reservations");
}

absl::StatusOr<Reservation> MemoryBudget::Reserve(MemoryKind kind, uid_t uid,
                                                  uint64_t size_bytes,
                                                  absl::string_view what,
                                                  const Terms& terms) {
  MutexLock lock(&mutex_);
  DATASETD_RETURN_IF_ERROR(CheckUserLimit(kind, uid, size_bytes, what, terms));
  // Cannot overflow: used_bytes_ <= total_bytes_.
  if (size_bytes > total_bytes_ - used_bytes_) {
    return Exhausted(uid, size_bytes, what, terms);
  }
  used_bytes_ += size_bytes;
  const uint64_t id = next_id_++;
  holdings_.emplace(id, Holding{kind, uid, size_bytes, std::string(what),
                                terms.is_private, terms.is_shared});
  return Reservation(this, id);
}

uint64_t MemoryBudget::UsedByUser(uid_t uid, MemoryKind kind) const {
  uint64_t bytes = 0;
  for (const auto& [id, holding] : holdings_) {
    if (holding.uid == uid && holding.kind == kind && !holding.is_shared) {
      bytes += holding.size_bytes;
    }
  }
  return bytes;
}

absl::Status MemoryBudget::CheckUser(MemoryKind kind, uid_t uid,
                                     uint64_t size_bytes,
                                     absl::string_view what,
                                     const Terms& terms) const {
  MutexLock lock(&mutex_);
  return CheckUserLimit(kind, uid, size_bytes, what, terms);
}

uint64_t MemoryBudget::LimitOf(MemoryKind kind, const Terms& terms) const {
  if (terms.is_exempt || terms.is_shared) return 0;
  const PerUserLimit limits =
      kind == MemoryKind::kDataset   ? user_limits_.dataset_bytes
      : kind == MemoryKind::kSlab    ? user_limits_.slab_bytes
      : kind == MemoryKind::kScratch ? user_limits_.scratch_bytes
                                     : user_limits_.text_bytes;
  return limits.Of(terms.is_privileged);
}

absl::Status MemoryBudget::CheckUserLimit(MemoryKind kind, uid_t uid,
                                          uint64_t size_bytes,
                                          absl::string_view what,
                                          const Terms& terms) const {
  const uint64_t limit = LimitOf(kind, terms);
  if (limit == 0) return absl::OkStatus();
  const uint64_t used = UsedByUser(uid, kind);
  if (used <= limit && size_bytes <= limit - used) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " needs ", Bytes(size_bytes), " of ", MemoryKindName(kind),
      " memory, and uid ", uid, " has ", Bytes(used), " of the ", Bytes(limit),
      " that one user may have. Unload a dataset or close a feed of this user, "
      "or raise user_limits.max_",
      MemoryKindName(kind), "_mib in the daemon's configuration"));
}

void MemoryBudget::Return(uint64_t id) {
  MutexLock lock(&mutex_);
  const auto holding = holdings_.find(id);
  Require(holding != holdings_.end(), "a reservation is given back once");
  used_bytes_ -= holding->second.size_bytes;
  holdings_.erase(holding);
}

uint64_t MemoryBudget::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

uint64_t MemoryBudget::free_bytes() const {
  MutexLock lock(&mutex_);
  return total_bytes_ - used_bytes_;
}

uint64_t MemoryBudget::FreeBytesFor(MemoryKind kind, uid_t uid,
                                    const Terms& terms) const {
  MutexLock lock(&mutex_);
  const uint64_t free = total_bytes_ - used_bytes_;
  const uint64_t limit = LimitOf(kind, terms);
  if (limit == 0) return free;
  return std::min(free, limit - std::min(limit, UsedByUser(uid, kind)));
}

uint64_t MemoryBudget::used_bytes_of_kind(MemoryKind kind) const {
  MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (const auto& [id, holding] : holdings_) {
    if (holding.kind == kind) bytes += holding.size_bytes;
  }
  return bytes;
}

std::vector<MemoryBudget::Holding> MemoryBudget::SortedHoldings() const {
  std::vector<Holding> sorted;
  sorted.reserve(holdings_.size());
  for (const auto& [id, holding] : holdings_) sorted.push_back(holding);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Holding& a, const Holding& b) {
                     return a.size_bytes > b.size_bytes;
                   });
  return sorted;
}

absl::Status MemoryBudget::Exhausted(uid_t uid, uint64_t size_bytes,
                                     absl::string_view what,
                                     const Terms& terms) const {
  std::string message = absl::StrCat(
      what, " needs ", Bytes(size_bytes), ", and ",
      Bytes(total_bytes_ - used_bytes_), " of the memory budget of ",
      Bytes(total_bytes_), " are free");
  std::vector<std::string> named;
  size_t num_more = 0;
  uint64_t more_bytes = 0;
  for (const Holding& holding : SortedHoldings()) {
    const bool is_seen =
        !holding.is_private || terms.is_privileged || holding.uid == uid;
    if (is_seen && named.size() < kMaxNamedHoldings) {
      named.push_back(absl::StrCat(holding.what, ": ",
                                   Bytes(holding.size_bytes), " of uid ",
                                   holding.uid));
    } else {
      ++num_more;
      more_bytes += holding.size_bytes;
    }
  }
  if (num_more > 0) {
    named.push_back(absl::StrCat(named.empty() ? "" : "and ", num_more,
                                 named.empty() ? " holders" : " more", ": ",
                                 Bytes(more_bytes)));
  }
  if (!named.empty()) {
    absl::StrAppend(&message, "; the rest is held by ",
                    absl::StrJoin(named, ", "));
  }
  if (size_bytes > total_bytes_) {
    absl::StrAppend(&message,
                    ". It is larger than the whole budget: make it smaller, "
                    "or raise ",
                    config_key_, " in the daemon's configuration");
  } else {
    absl::StrAppend(&message,
                    ". Unload a dataset, close a feed, use a smaller "
                    "batch_size or prefetch, or raise ",
                    config_key_, " in the daemon's configuration");
  }
  return absl::ResourceExhaustedError(message);
}

}  // namespace datasetd
