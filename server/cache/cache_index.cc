#include "server/cache/cache_index.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd {

// The users' bytes, and the entries that may go, while some are chosen.
class CacheIndex::Plan {
 public:
  explicit Plan(const CacheIndex& index) {
    for (const auto& [spec_id, entry] : index.entries_) {
      User& user = users_[entry.uid];
      const int64_t charge = index.Charge(entry.size_bytes);
      user.bytes += charge;
      total_bytes_ += charge;
      if (entry.num_pins > 0) continue;
      user.entries.push_back({entry.last_used, charge, &spec_id});
    }
    for (auto& [uid, user] : users_) {
      std::sort(user.entries.begin(), user.entries.end(),
                [](const Candidate& a, const Candidate& b) {
                  return a.last_used > b.last_used;
                });
    }
  }

  void Add(uint32_t uid, int64_t charge) {
    users_[uid].bytes += charge;
    total_bytes_ += charge;
  }
  int64_t total_bytes() const { return total_bytes_; }
  int64_t BytesOf(uint32_t uid) const { return users_.at(uid).bytes; }

  // The user's least recently used entry goes. False if there is none.
  bool DropOne(uint32_t uid) {
    User& user = users_.at(uid);
    if (user.entries.empty()) return false;
    user.bytes -= user.entries.back().charge;
    total_bytes_ -= user.entries.back().charge;
    dropped_.push_back(*user.entries.back().spec_id);
    user.entries.pop_back();
    return true;
  }
  // That of the user who has the most; of equal ones `preferred`. Others whose
  // entries are all in use are passed over.
  bool DropOfLargest(std::optional<uint32_t> preferred) {
    const auto rank = [&](const auto& user) {
      const bool is_preferred = user.first == preferred;
      return std::tuple(is_preferred || !user.second.entries.empty(),
                        user.second.bytes, is_preferred);
    };
    const auto largest = std::max_element(
        users_.begin(), users_.end(),
        [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return largest != users_.end() && DropOne(largest->first);
  }
  std::vector<std::string> TakeDropped() { return std::move(dropped_); }

 private:
  struct Candidate {
    uint64_t last_used = 0;
    int64_t charge = 0;
    const std::string* spec_id = nullptr;
  };
  struct User {
    int64_t bytes = 0;
    std::vector<Candidate> entries;  // the least recently used last
  };

  std::map<uint32_t, User> users_;
  int64_t total_bytes_ = 0;
  std::vector<std::string> dropped_;
};

void CacheIndex::SetLimits(const Limits& limits) { limits_ = limits; }

void CacheIndex::Add(const std::string& spec_id, uint32_t uid,
                     int64_t size_bytes) {
  entries_[spec_id] = {.uid = uid,
                       .size_bytes = size_bytes,
                       .last_used = ++num_uses_,
                       .generation = ++num_added_};
  used_bytes_ += size_bytes;
}

void CacheIndex::Use(const std::string& spec_id) {
  entries_.at(spec_id).last_used = ++num_uses_;
}

uint32_t CacheIndex::Remove(const std::string& spec_id) {
  const auto found = entries_.find(spec_id);
  const uint32_t uid = found->second.uid;
  used_bytes_ -= found->second.size_bytes;
  entries_.erase(found);
  return uid;
}

int64_t CacheIndex::Charge(int64_t size_bytes) const {
  return std::max(size_bytes, limits_.total_bytes / kMaxEntries);
}

int64_t CacheIndex::LimitOf(uint32_t uid) const {
  if (limits_.user_bytes.has_value()) return *limits_.user_bytes;
  const bool is_privileged = uid == 0 || uid == limits_.daemon_uid;
  return is_privileged ? 0 : std::max<int64_t>(limits_.total_bytes / 2, 1);
}

absl::StatusOr<std::vector<std::string>> CacheIndex::PlanRoom(
    uint32_t uid, int64_t size_bytes) const {
  const int64_t charge = Charge(size_bytes);
  if (charge > limits_.total_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it takes ", size_bytes, " bytes, and the cache has ",
                     limits_.total_bytes, "; raise cache.limit_mib"));
  }
  const int64_t user_bytes = LimitOf(uid);
  if (user_bytes > 0 && charge > user_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it takes ", size_bytes, " bytes, and uid ", uid, " may have ",
        user_bytes, " of the cache's ", limits_.total_bytes,
        "; raise user_limits.max_cache_mib or cache.limit_mib"));
  }
  Plan plan(*this);
  plan.Add(uid, charge);
  while (user_bytes > 0 && plan.BytesOf(uid) > user_bytes) {
    if (plan.DropOne(uid)) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "it takes ", size_bytes, " bytes, and uid ", uid, " may have ",
        user_bytes, " of the cache, of which mapped datasets use ",
        plan.BytesOf(uid) - charge,
        "; unload one, or raise user_limits.max_cache_mib"));
  }
  while (plan.total_bytes() > limits_.total_bytes) {
    if (plan.DropOfLargest(uid)) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "it takes ", size_bytes, " bytes of the cache's ", limits_.total_bytes,
        ", and each of the other users has less, or uses it for mapped "
        "datasets; raise cache.limit_mib"));
  }
  return plan.TakeDropped();
}

std::vector<std::string> CacheIndex::PlanRoom() const {
  Plan plan(*this);
  while (plan.total_bytes() > limits_.total_bytes &&
         plan.DropOfLargest(std::nullopt)) {
  }
  return plan.TakeDropped();
}

}  // namespace datasetd
