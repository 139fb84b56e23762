#include "server/attach/user_threads.h"

#include <pthread.h>

#include <utility>

#include "base/background_thread.h"

namespace datasetd {

UserThreads::UserThreads(const char* name, absl::Duration end_timeout)
    : name_(name),
      end_timeout_(end_timeout),
      state_(std::make_shared<State>()) {}

UserThreads::~UserThreads() {
  State& state = *state_;
  const auto have_ended = [&state]() ABSL_SHARED_LOCKS_REQUIRED(state.mutex) {
    return state.tasks.empty();
  };
  MutexLock lock(&state.mutex);
  state.is_stopping = true;
  state.mutex.AwaitWithTimeout(Condition(&have_ended), end_timeout_);
}

absl::Status UserThreads::Run(uint32_t uid, std::function<void()> task) {
  MutexLock lock(&state_->mutex);
  const auto [found, is_new] = state_->tasks.try_emplace(uid);
  found->second.push_back(std::move(task));
  if (!is_new) return absl::OkStatus();
  auto thread = StartThread([state = state_, uid, name = name_] {
    pthread_setname_np(pthread_self(), name);
    Loop(*state, uid);
  });
  if (!thread.ok()) {
    state_->tasks.erase(found);
    return thread.status();
  }
  thread->detach();
  return absl::OkStatus();
}

size_t UserThreads::num_tasks(uint32_t uid) const {
  MutexLock lock(&state_->mutex);
  const auto found = state_->tasks.find(uid);
  return found == state_->tasks.end() ? 0 : found->second.size();
}

void UserThreads::Loop(State& state, uint32_t uid) {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&state.mutex);
      task = std::move(state.tasks.at(uid).front());
    }
    task();
    task = nullptr;
    Tasks dropped;
    {
      MutexLock lock(&state.mutex);
      Tasks& tasks = state.tasks.at(uid);
      tasks.pop_front();
      if (state.is_stopping) dropped.swap(tasks);
    }
    // Without the lock, and before the destructor goes on.
    dropped.clear();
    MutexLock lock(&state.mutex);
    if (!state.tasks.at(uid).empty()) continue;
    state.tasks.erase(uid);
    return;
  }
}

}  // namespace datasetd
