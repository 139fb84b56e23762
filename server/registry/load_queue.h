// The loads that wait for a thread. Users take turns; a user has at most
// kMaxRunningPerUser loads running. Not thread-safe.

#ifndef DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_
#define DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "server/registry/dataset_entry.h"

namespace datasetd {

class LoadQueue {
 public:
  static constexpr int kMaxRunningPerUser = 2;
  // Enough for the loads of four users at a time.
  static constexpr int kNumThreads = 4 * kMaxRunningPerUser;

  using EntryPtr = std::shared_ptr<DatasetEntry>;

  void Add(EntryPtr entry) {
    users_[entry->owner.uid].waiting.push_back(std::move(entry));
  }

  // True if Take would find a load.
  bool HasTurn() const {
    for (const auto& [uid, user] : users_) {
      if (user.MayRun()) return true;
    }
    return false;
  }

  // Returns the first load of the user whose last turn is the longest ago. It
  // counts as running until Finish. REQUIRES: HasTurn().
  EntryPtr Take() {
    User* next = nullptr;
    for (auto& [uid, user] : users_) {
      if (user.MayRun() &&
          (next == nullptr || user.last_turn < next->last_turn))
        next = &user;
    }
    EntryPtr entry = std::move(next->waiting.front());
    next->waiting.pop_front();
    ++next->num_running;
    next->last_turn = ++num_turns_;
    return entry;
  }

  void Finish(uint32_t uid) {
    const auto found = users_.find(uid);
    User& user = found->second;
    if (--user.num_running == 0 && user.waiting.empty()) users_.erase(found);
  }

  void Clear() {
    for (auto& [uid, user] : users_) user.waiting.clear();
  }

 private:
  struct User {
    std::deque<EntryPtr> waiting;
    int num_running = 0;
    uint64_t last_turn = 0;

    bool MayRun() const {
      return !waiting.empty() && num_running < kMaxRunningPerUser;
    }
  };

  std::map<uint32_t, User> users_;
  uint64_t num_turns_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_
