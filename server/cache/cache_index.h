// The entries of the cache on disk: their sizes, users and order of use, and
// which of them make room for a new one.
//
// A user's entries take at most the user's limit. When the cache is full, the
// user whose entries take the most gives way, the least recently used entry
// first; so nobody's churn costs another user what is less than an equal part.
// An entry counts as 1/65536 of the cache at least, which bounds their number.
// An entry that is in use is kept, and counts. Not thread-safe.

#ifndef DATASETD_SERVER_CACHE_CACHE_INDEX_H_
#define DATASETD_SERVER_CACHE_CACHE_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace datasetd {

class CacheIndex {
 public:
  static constexpr int64_t kMaxEntries = 65536;

  struct Limits {
    int64_t total_bytes = 0;
    // One user's limit. Unset: half of the total, and none for root and
    // `daemon_uid`; 0: none.
    std::optional<int64_t> user_bytes;
    uint32_t daemon_uid = 0;
  };

  void SetLimits(const Limits& limits);
  int64_t limit_bytes() const { return limits_.total_bytes; }
  int64_t used_bytes() const { return used_bytes_; }
  int num_entries() const { return static_cast<int>(entries_.size()); }
  bool Contains(const std::string& spec_id) const {
    return entries_.count(spec_id) != 0;
  }

  // The entry counts as used now. REQUIRES: it is not there.
  void Add(const std::string& spec_id, uint32_t uid, int64_t size_bytes);
  // REQUIRES of the next seven: it is there.
  uint32_t UidOf(const std::string& spec_id) const {
    return entries_.at(spec_id).uid;
  }
  // Differs from that of every other entry, also of those that had the same id.
  uint64_t GenerationOf(const std::string& spec_id) const {
    return entries_.at(spec_id).generation;
  }
  void Use(const std::string& spec_id);
  // Counts the uses that keep an entry.
  void Pin(const std::string& spec_id) { ++entries_.at(spec_id).num_pins; }
  void Unpin(const std::string& spec_id) { --entries_.at(spec_id).num_pins; }
  bool IsPinned(const std::string& spec_id) const {
    return entries_.at(spec_id).num_pins > 0;
  }
  // Returns whose it was.
  uint32_t Remove(const std::string& spec_id);

  // The entries that must go so that the user's new one fits, and so that the
  // others do.
  //   RESOURCE_EXHAUSTED  it does not fit, whatever goes: names the key that
  //                       limits it
  absl::StatusOr<std::vector<std::string>> PlanRoom(uint32_t uid,
                                                    int64_t size_bytes) const;
  // The entries that are too many.
  std::vector<std::string> PlanRoom() const;

 private:
  struct Entry {
    uint32_t uid = 0;
    int64_t size_bytes = 0;
    uint64_t last_used = 0;   // by num_uses_
    uint64_t generation = 0;  // by num_added_
    int num_pins = 0;
  };
  class Plan;

  int64_t Charge(int64_t size_bytes) const;
  // 0: none.
  int64_t LimitOf(uint32_t uid) const;

  Limits limits_;
  std::map<std::string, Entry> entries_;
  int64_t used_bytes_ = 0;
  uint64_t num_uses_ = 0;
  uint64_t num_added_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHE_INDEX_H_
