// Work on loads that waits for a thread. Users take turns, and none has more
// than so many pieces of it running. Not thread-safe.

#ifndef DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_
#define DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <utility>

namespace datasetd {

template <typename Job>
class LoadQueue {
 public:
  explicit LoadQueue(int max_running_per_user,
                     int max_running = std::numeric_limits<int>::max())
      : max_running_per_user_(max_running_per_user),
        max_running_(max_running) {}

  void Add(uint32_t uid, Job job) {
    users_[uid].waiting.push_back(std::move(job));
  }

  // True if Take would find one.
  bool HasTurn() const {
    for (const auto& [uid, user] : users_) {
      if (MayRun(user)) return true;
    }
    return false;
  }

  // Returns the first job of the user whose last turn is the longest ago. It
  // counts as running until Finish. REQUIRES: HasTurn().
  Job Take() {
    User* next = nullptr;
    for (auto& [uid, user] : users_) {
      if (MayRun(user) && (next == nullptr || user.last_turn < next->last_turn))
        next = &user;
    }
    Job job = std::move(next->waiting.front());
    next->waiting.pop_front();
    ++next->num_running;
    ++num_running_;
    next->last_turn = ++num_turns_;
    return job;
  }

  void Finish(uint32_t uid) {
    const auto found = users_.find(uid);
    User& user = found->second;
    --num_running_;
    if (--user.num_running == 0 && user.waiting.empty()) users_.erase(found);
  }

  // Removes a user's jobs that `predicate` is true of; false if there is none.
  template <typename Predicate>
  bool Remove(uint32_t uid, Predicate predicate) {
    const auto found = users_.find(uid);
    if (found == users_.end()) return false;
    User& user = found->second;
    const size_t num_removed = std::erase_if(user.waiting, predicate);
    if (user.waiting.empty() && user.num_running == 0) users_.erase(found);
    return num_removed > 0;
  }

  void Clear() {
    for (auto& [uid, user] : users_) user.waiting.clear();
  }

 private:
  struct User {
    std::deque<Job> waiting;
    int num_running = 0;
    uint64_t last_turn = 0;
  };

  bool MayRun(const User& user) const {
    return !user.waiting.empty() && num_running_ < max_running_ &&
           user.num_running < max_running_per_user_;
  }

  const int max_running_per_user_;
  const int max_running_;
  std::map<uint32_t, User> users_;
  int num_running_ = 0;
  uint64_t num_turns_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_LOAD_QUEUE_H_
