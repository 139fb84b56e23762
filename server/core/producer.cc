#include "server/core/producer.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cuda/nvtx_range.h"
#include "cuda/status_macros.h"
#include "server/core/clock.h"

namespace datasetd {
namespace {

constexpr int64_t kMinPollNanoseconds = 20'000;
constexpr int64_t kMaxPollNanoseconds = 500'000;
constexpr uint64_t kWakeWindowNanoseconds = 10'000'000;
constexpr int kMaxSpuriousWakes = 100;
constexpr int kMaxEvents = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<Producer>> Producer::Start(
    Backend* backend, std::function<void(absl::Status)> on_failure) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.has_value() || !wake.has_value()) {
    return absl::ErrnoToStatus(errno, "producer: epoll or eventfd");
  }
  // Edge-triggered and never read, as the clients' are.
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "producer: epoll_ctl");
  }
  std::unique_ptr<Producer> producer(new Producer(
      backend, std::move(on_failure), std::move(epoll), std::move(wake)));
  producer->thread_ = std::thread([p = producer.get()] { p->Run(); });
  return producer;
}

Producer::Producer(Backend* backend,
                   std::function<void(absl::Status)> on_failure, FileDescriptor epoll,
                   FileDescriptor wake)
    : backend_(backend),
      on_failure_(std::move(on_failure)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)) {
  woken_.reserve(kMaxEvents);
}

Producer::~Producer() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  Wake();
  thread_.join();
}

std::function<void()> Producer::on_done() {
  return [this] { Wake(); };
}

void Producer::Add(Feed* feed) {
  {
    MutexLock lock(&mutex_);
    commands_.push_back({feed, false, nullptr});
  }
  Wake();
}

void Producer::Remove(Feed* feed, std::function<void()> on_removed) {
  {
    MutexLock lock(&mutex_);
    commands_.push_back({feed, true, std::move(on_removed)});
  }
  Wake();
}

void Producer::Wake() {
  if (is_woken_.exchange(true)) return;  // it has not looked yet
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the thread is awake.
  [[maybe_unused]] const ssize_t written =
      write(wake_.get(), &one, sizeof(one));
}

void Producer::Ping() {
  num_pings_.fetch_add(1);
  Wake();
}

ProducerProgress Producer::progress() const {
  return {.num_pings = num_pings_.load(),
          .num_pings_answered = num_pings_answered_.load(),
          .num_launches_ended = num_launches_ended_.load(),
          .has_running_launch = has_running_launch_.load()};
}

void Producer::Listen(Member& member, bool listen) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = &member;
  epoll_ctl(epoll_.get(), listen ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
            member.feed->channel().wake_descriptor(), &event);
}

void Producer::TakeCommands() {
  std::vector<Command> commands;
  {
    MutexLock lock(&mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (!command.is_removal) {
      auto member = std::make_unique<Member>();
      member->feed = command.feed;
      Listen(*member, true);
      members_.push_back(std::move(member));
      continue;
    }
    for (const std::unique_ptr<Member>& member : members_) {
      if (member->feed != command.feed) continue;
      member->feed->Stop();
      member->on_removed = std::move(command.on_removed);
    }
  }
}

bool Producer::ScanAll() {
  const uint64_t now = MonotonicNanoseconds();
  bool changed = false;
  for (const std::unique_ptr<Member>& member : members_) {
    const bool feed_changed = member->feed->Scan(now);
    changed |= feed_changed;
    const auto woken = std::find(woken_.begin(), woken_.end(), member.get());
    if (woken != woken_.end()) {
      // Also while a release is pending: polling sees its end.
      if (!feed_changed) CountSpuriousWake(*member);
      woken_.erase(woken);
    }
  }
  woken_.clear();
  return changed;
}

void Producer::CountSpuriousWake(Member& member) {
  const uint64_t now = MonotonicNanoseconds();
  if (now - member.window_start_nanoseconds > kWakeWindowNanoseconds) {
    member.window_start_nanoseconds = now;
    member.num_spurious_wakes = 0;
  }
  if (++member.num_spurious_wakes < kMaxSpuriousWakes || member.is_muted) {
    return;
  }
  member.is_muted = true;
  ++num_muted_;
  num_throttled_.fetch_add(1, std::memory_order_relaxed);
  Listen(member, false);
}

void Producer::Unmute() {
  if (num_muted_ == 0) return;
  const uint64_t now = MonotonicNanoseconds();
  for (const std::unique_ptr<Member>& member : members_) {
    if (!member->is_muted ||
        now - member->window_start_nanoseconds <= kWakeWindowNanoseconds) {
      continue;
    }
    member->is_muted = false;
    --num_muted_;
    Listen(*member, true);
  }
}

absl::StatusOr<bool> Producer::CollectAll() {
  bool changed = false;
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->feed->is_quiescent()) continue;
    DATASETD_ASSIGN_OR_RETURN(const int num_ended, member->feed->Collect());
    num_running_launches_ -= num_ended;
    num_launches_ended_.fetch_add(static_cast<uint64_t>(num_ended),
                                  std::memory_order_relaxed);
    changed |= num_ended > 0;
  }
  return changed;
}

absl::StatusOr<bool> Producer::LaunchAll() {
  bool launched = false;
  const size_t num_members = members_.size();
  size_t num_refusals = 0;
  // One launch a turn; the turn goes on where the last round ended.
  while (num_refusals < num_members &&
         num_running_launches_ < backend_->max_launches_in_flight()) {
    next_member_ = (next_member_ + 1) % num_members;
    Feed& feed = *members_[next_member_]->feed;
    if (!feed.CanLaunch()) {
      ++num_refusals;
      continue;
    }
    const NvtxRange range("produce");
    DATASETD_ASSIGN_OR_RETURN(
        const bool has_started,
        feed.Launch(backend_->max_batches_per_launch(feed.batch_bytes())));
    if (!has_started) {
      ++num_refusals;
      continue;
    }
    num_refusals = 0;
    ++num_running_launches_;
    launched = true;
  }
  return launched;
}

bool Producer::ForgetRemoved() {
  bool changed = false;
  for (size_t i = 0; i < members_.size();) {
    Member& member = *members_[i];
    if (member.on_removed == nullptr ||
        !(has_failed_ || member.feed->is_quiescent())) {
      ++i;
      continue;
    }
    if (member.is_muted) {
      --num_muted_;
    } else {
      Listen(member, false);
    }
    const std::function<void()> on_removed = std::move(member.on_removed);
    members_.erase(members_.begin() + static_cast<ptrdiff_t>(i));
    on_removed();
    changed = true;
  }
  return changed;
}

void Producer::SetIdleAll(bool idle) {
  for (const std::unique_ptr<Member>& member : members_) {
    member->feed->channel().SetIdle(idle);
  }
}

void Producer::Wait(int64_t timeout_nanoseconds) {
  timespec timeout = {};
  timeout.tv_sec = timeout_nanoseconds / 1'000'000'000;
  timeout.tv_nsec = timeout_nanoseconds % 1'000'000'000;
  epoll_event events[kMaxEvents];
  const int num_events =
      epoll_pwait2(epoll_.get(), events, kMaxEvents,
                   timeout_nanoseconds < 0 ? nullptr : &timeout, nullptr);
  // Before anything is looked at.
  is_woken_.exchange(false);
  for (int i = 0; i < num_events; ++i) {
    if (events[i].data.ptr != nullptr) {
      woken_.push_back(static_cast<Member*>(events[i].data.ptr));
    }
  }
}

void Producer::Fail(const absl::Status& status) {
  has_failed_ = true;
  for (const std::unique_ptr<Member>& member : members_) member->feed->Stop();
  on_failure_(status);
}

void Producer::Run() {
  pthread_setname_np(pthread_self(), "producer");
  int64_t poll_nanoseconds = kMinPollNanoseconds;
  while (true) {
    num_rounds_.fetch_add(1, std::memory_order_relaxed);
    has_running_launch_.store(num_running_launches_ > 0,
                              std::memory_order_relaxed);
    num_pings_answered_.store(num_pings_.load());
    TakeCommands();
    Unmute();
    bool progress = ScanAll();
    if (!has_failed_) {
      auto collected = CollectAll();
      auto launched = collected.ok() ? LaunchAll() : collected;
      if (!launched.ok()) {
        Fail(launched.status());
        continue;
      }
      progress |= *collected || *launched;
    }
    progress |= ForgetRemoved();
    if (progress) {
      poll_nanoseconds = kMinPollNanoseconds;
      continue;
    }

    bool must_poll =
        backend_->needs_polling() && num_running_launches_ > 0 && !has_failed_;
    bool has_prepared = false;
    for (const std::unique_ptr<Member>& member : members_) {
      must_poll |= member->feed->has_pending_release();
      if (!has_failed_ && !has_prepared) {
        has_prepared = member->feed->PrepareNextEpoch();
      }
    }
    if (has_prepared) continue;
    if (must_poll) {
      Wait(poll_nanoseconds);
      poll_nanoseconds = std::min(2 * poll_nanoseconds, kMaxPollNanoseconds);
      continue;
    }

    // See Note [Wake-ups] in docs/ring.md.
    SetIdleAll(true);
    bool must_look = ScanAll();
    for (const std::unique_ptr<Member>& member : members_) {
      must_look |= member->feed->has_pending_release();
    }
    {
      MutexLock lock(&mutex_);
      must_look |= !commands_.empty();
      if (is_stopping_ && commands_.empty()) return;
    }
    if (!must_look) {
      Wait(num_muted_ > 0 ? static_cast<int64_t>(kWakeWindowNanoseconds) : -1);
    }
    SetIdleAll(false);
    poll_nanoseconds = kMinPollNanoseconds;
  }
}

}  // namespace datasetd
