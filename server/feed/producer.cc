#include "server/feed/producer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/nvtx_range.h"
#include "base/status_macros.h"
#include "cuda/backend/device_failure.h"

namespace datasetd {
namespace {

constexpr uint64_t kWakeWindowNanoseconds = 10'000'000;
constexpr int kMaxSpuriousWakes = 100;
constexpr int kMaxEvents = 64;
// If the usage of users or feeds differs by less, they alternate launches.
constexpr uint64_t kEqualNanoseconds = 1'000'000;
// The thread starts launches for so long before it looks for completed ones.
constexpr uint64_t kMaxLaunchingNanoseconds = 1'000'000;

thread_local bool is_producer_thread = false;

int Sleep(int epoll, epoll_event* events, int max_events,
          int64_t timeout_nanoseconds) {
  timespec duration = {};
  duration.tv_sec = timeout_nanoseconds / 1'000'000'000;
  duration.tv_nsec = timeout_nanoseconds % 1'000'000'000;
  const timespec* const timeout = timeout_nanoseconds < 0 ? nullptr : &duration;
  static std::atomic<bool> has_epoll_pwait2 = true;
  if (has_epoll_pwait2.load(std::memory_order_relaxed)) {
    const int num_events =
        epoll_pwait2(epoll, events, max_events, timeout, nullptr);
    if (num_events >= 0 || (errno != ENOSYS && errno != EPERM)) {
      return num_events;
    }
    has_epoll_pwait2.store(false, std::memory_order_relaxed);
  }
  // Linux before 5.11, or a seccomp filter that does not know the call.
  pollfd ready = {.fd = epoll, .events = POLLIN, .revents = 0};
  ppoll(&ready, 1, timeout, nullptr);
  return epoll_wait(epoll, events, max_events, 0);
}

}  // namespace

Producer::PollTime Producer::RealPollTime() {
  return {.now = MonotonicNanoseconds, .wait = Sleep};
}

absl::StatusOr<std::unique_ptr<Producer>> Producer::Start(
    Backend* backend, FailureFunction on_failure, ClockFunction clock,
    PollTime poll_time) {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.has_value() || !wake.has_value()) {
    return absl::ErrnoToStatus(errno, "producer: epoll or eventfd");
  }
  // Edge-triggered and never read, like the clients' eventfds.
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "producer: epoll_ctl");
  }
  std::unique_ptr<Producer> producer(
      new Producer(backend, std::move(on_failure), clock, std::move(poll_time),
                   std::move(epoll), std::move(wake)));
  producer->thread_ = std::thread([p = producer.get()] { p->Loop(); });
  return producer;
}

Producer::Producer(Backend* backend, FailureFunction on_failure,
                   ClockFunction clock, PollTime poll_time,
                   FileDescriptor epoll, FileDescriptor wake)
    : backend_(backend),
      on_failure_(std::move(on_failure)),
      clock_(clock),
      poll_time_(std::move(poll_time)),
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

bool Producer::IsThisThread() { return is_producer_thread; }

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

void Producer::Run(std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    commands_.push_back({nullptr, false, std::move(task)});
  }
  Wake();
}

void Producer::Wake() {
  if (is_woken_.exchange(true)) return;  // it has not looked yet
  // EAGAIN: the counter is full, so the thread is awake.
  eventfd_write(wake_.get(), 1);
}

void Producer::Ping() {
  num_pings_.fetch_add(1);
  backend_->RequestProgress();
  Wake();
}

ProducerProgress Producer::progress() const {
  return {.num_pings = num_pings_.load(),
          .num_pings_answered = num_pings_answered_.load(),
          .num_launches_ended = num_launches_ended_.load(),
          .num_pieces = backend_->num_pieces(),
          .has_running_launch = has_running_launch_.load()};
}

void Producer::Listen(Member& member, bool listen) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = &member;
  const int result =
      epoll_ctl(epoll_.get(), listen ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
                member.feed->channel().wake_descriptor(), &event);
  if (result == 0 || !listen) return;
  // Its releases would not be seen.
  on_failure_(member.feed->id(),
              absl::ErrnoToStatus(
                  errno, "feed: epoll_ctl; see fs.epoll.max_user_watches"));
  member.feed->Stop();
}

void Producer::TakeCommands() {
  std::vector<Command> commands;
  {
    MutexLock lock(&mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    if (command.feed == nullptr) {
      command.run();
      continue;
    }
    if (!command.is_removal) {
      auto member = std::make_unique<Member>();
      member->feed = command.feed;
      member->user = &users_[command.feed->uid()];
      ++member->user->num_feeds;
      Listen(*member, true);
      members_.push_back(std::move(member));
      continue;
    }
    for (const std::unique_ptr<Member>& member : members_) {
      if (member->feed != command.feed) continue;
      member->feed->Stop();
      member->on_removed = std::move(command.run);
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
  int num_all_ended = 0;
  const uint64_t now = PollNow();
  for (const std::unique_ptr<Member>& member : members_) {
    member->num_ended = 0;
    if (member->feed->is_quiescent()) continue;
    DATASETD_ASSIGN_OR_RETURN(const int num_ended, member->feed->Collect());
    if (num_ended == 0) {
      member->seen_running_nanoseconds = now;
      continue;
    }
    member->last_launch_nanoseconds =
        (member->seen_running_nanoseconds - member->running_since_nanoseconds) /
        static_cast<uint64_t>(num_ended);
    member->running_since_nanoseconds = now;
    member->seen_running_nanoseconds = now;
    member->num_ended = num_ended;
    member->num_launches -= num_ended;
    member->user->num_launches -= num_ended;
    num_all_ended += num_ended;
  }
  if (num_all_ended == 0) return false;
  num_running_launches_ -= num_all_ended;
  num_launches_ended_.fetch_add(static_cast<uint64_t>(num_all_ended),
                                std::memory_order_relaxed);
  if (!backend_->takes_turns()) ChargeEnded(num_all_ended);
  return true;
}

void Producer::Charge(Member& member, uint64_t nanoseconds) {
  member.used_nanoseconds += nanoseconds;
  member.user->used_nanoseconds += nanoseconds;
}

void Producer::ChargeEnded(int num_ended) {
  const uint64_t now = clock_();
  const uint64_t elapsed = now - busy_since_nanoseconds_;
  busy_since_nanoseconds_ = now;
  const uint64_t share = elapsed / static_cast<uint64_t>(num_ended);
  for (const std::unique_ptr<Member>& member : members_) {
    Charge(*member, share * static_cast<uint64_t>(member->num_ended));
  }
}

bool Producer::HasPlace(const Member& member) const {
  const int max_launches = backend_->max_launches_in_flight();
  if (backend_->takes_turns()) {
    return member.num_launches == 0 || member.user->num_launches < max_launches;
  }
  // One place is reserved for other feeds.
  const int max_own =
      members_.size() > 1 ? std::max(max_launches - 1, 1) : max_launches;
  return num_running_launches_ < max_launches && member.num_launches < max_own;
}

void Producer::UpdateWaiting() {
  for (auto& [uid, user] : users_) user.least_nanoseconds = UINT64_MAX;
  uint64_t least_user = UINT64_MAX;
  for (const std::unique_ptr<Member>& member : members_) {
    member->is_refused = false;
    if (!member->is_waiting && member->num_launches == 0) continue;
    User& user = *member->user;
    least_user = std::min(least_user, user.used_nanoseconds);
    user.least_nanoseconds =
        std::min(user.least_nanoseconds, member->used_nanoseconds);
  }
  if (least_user != UINT64_MAX) {
    floor_nanoseconds_ = std::max(floor_nanoseconds_, least_user);
  }
  for (auto& [uid, user] : users_) {
    if (user.least_nanoseconds == UINT64_MAX) continue;
    user.floor_nanoseconds =
        std::max(user.floor_nanoseconds, user.least_nanoseconds);
  }
  for (const std::unique_ptr<Member>& member : members_) {
    const bool was_waiting = member->is_waiting;
    member->is_waiting = member->feed->CanLaunch();
    if (!member->is_waiting || was_waiting || member->num_launches > 0) {
      continue;
    }
    User& user = *member->user;
    if (user.least_nanoseconds == UINT64_MAX) {
      user.used_nanoseconds =
          std::max(user.used_nanoseconds, floor_nanoseconds_);
    }
    member->used_nanoseconds =
        std::max(member->used_nanoseconds, user.floor_nanoseconds);
  }
}

Producer::Member* Producer::NextMember() {
  const size_t num_members = members_.size();
  const auto used = [](const Member& member) {
    return std::pair(member.user->used_nanoseconds / kEqualNanoseconds,
                     member.used_nanoseconds / kEqualNanoseconds);
  };
  // Nobody else waits for what one of the user's feeds takes.
  const bool is_alone = backend_->takes_turns() && users_.size() == 1;
  size_t next = num_members;
  // Ties go to the next member after the last turn.
  for (size_t i = 1; i <= num_members; ++i) {
    const size_t at = (next_member_ + i) % num_members;
    const Member& member = *members_[at];
    if (member.is_refused || !member.feed->CanLaunch() || !HasPlace(member)) {
      continue;
    }
    if (next == num_members || used(member) < used(*members_[next])) next = at;
    if (is_alone) break;
  }
  if (next == num_members) return nullptr;
  next_member_ = next;
  return members_[next].get();
}

absl::StatusOr<bool> Producer::LaunchAll() {
  UpdateWaiting();
  bool progress = false;
  std::optional<uint64_t> begin;
  uint64_t now = 0;
  while (!begin.has_value() || now - *begin < kMaxLaunchingNanoseconds) {
    Member* const member = NextMember();
    if (member == nullptr) return progress;
    if (!begin.has_value()) begin = now = clock_();
    Feed& feed = *member->feed;
    const NvtxRange range("produce");
    const absl::StatusOr<bool> has_started =
        feed.Launch(backend_->max_batches_per_launch(feed.batch_bytes()));
    const uint64_t end = clock_();
    Charge(*member, end - now);
    now = end;
    if (!has_started.ok()) {
      const absl::Status& error = has_started.status();
      if (IsDeviceFailure(error)) return error;
      // First the reason, then the end that the client sees.
      on_failure_(feed.id(), error);
      feed.Stop();
      continue;
    }
    if (!*has_started) {
      member->is_refused = true;
      progress |= feed.has_partial_order();
      continue;
    }
    if (num_running_launches_++ == 0) busy_since_nanoseconds_ = now;
    if (member->num_launches++ == 0) {
      member->running_since_nanoseconds = PollNow();
      member->seen_running_nanoseconds = member->running_since_nanoseconds;
    }
    ++member->user->num_launches;
    progress = true;
  }
  // Others may wait.
  return true;
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
    // After a device failure its launches may never end.
    member.user->num_launches -= member.num_launches;
    if (--member.user->num_feeds == 0) users_.erase(member.feed->uid());
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

uint64_t Producer::PollNow() const {
  return backend_->needs_polling() ? poll_time_.now() : 0;
}

void Producer::Poll() {
  const uint64_t now = PollNow();
  uint64_t distance = PollBackoff::kNever;
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->num_launches == 0) continue;
    const uint64_t end =
        member->running_since_nanoseconds + member->last_launch_nanoseconds;
    distance = std::min(distance, end > now ? end - now : now - end);
  }
  Wait(static_cast<int64_t>(backoff_.Next(distance)));
}

int64_t Producer::MaxSleepNanoseconds() const {
  uint64_t sleep = num_muted_ > 0 ? kWakeWindowNanoseconds : UINT64_MAX;
  const uint64_t now = MonotonicNanoseconds();
  for (const std::unique_ptr<Member>& member : members_) {
    const std::optional<uint64_t> end = member->feed->gathers_until();
    if (end.has_value()) sleep = std::min(sleep, *end > now ? *end - now : 0);
  }
  return sleep == UINT64_MAX ? -1 : static_cast<int64_t>(sleep);
}

void Producer::Wait(int64_t timeout_nanoseconds) {
  epoll_event events[kMaxEvents];
  const int num_events =
      poll_time_.wait(epoll_.get(), events, kMaxEvents, timeout_nanoseconds);
  // Reset before looking, so that a later wake is not lost.
  is_woken_.exchange(false);
  for (int i = 0; i < num_events; ++i) {
    if (events[i].data.ptr != nullptr) {
      woken_.push_back(static_cast<Member*>(events[i].data.ptr));
    }
  }
}

void Producer::Fail(const absl::Status& status) {
  has_failed_ = true;
  std::string feeds;
  for (const std::unique_ptr<Member>& member : members_) {
    member->feed->Stop();
    if (member->num_launches == 0) continue;
    absl::StrAppend(&feeds, feeds.empty() ? "" : ", ", member->feed->id());
  }
  on_failure_(0,
              DeviceFailure(
                  absl::Status(status.code(),
                               absl::StrCat(status.message(),
                                            "; feeds with launches in flight: ",
                                            feeds.empty() ? "none" : feeds)),
                  backend_->info().name));
}

void Producer::Loop() {
  pthread_setname_np(pthread_self(), "producer");
  is_producer_thread = true;
  while (true) {
    num_rounds_.fetch_add(1, std::memory_order_relaxed);
    // Launches on a failed device may never end, and nobody waits for them.
    has_running_launch_.store(num_running_launches_ > 0 && !has_failed_,
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
      backoff_.Reset();
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
      Poll();
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
    if (!must_look) Wait(MaxSleepNanoseconds());
    SetIdleAll(false);
    backoff_.Reset();
  }
}

}  // namespace datasetd
