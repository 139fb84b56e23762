#include "cuda/host/host_thread_pool.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "base/background_thread.h"

namespace datasetd {
namespace {

using Clock = std::chrono::steady_clock;

// A run that others wait for is looked at so often.
constexpr std::chrono::milliseconds kTick(2);
constexpr uint64_t kSliceNanoseconds = 2'000'000;
// Differences below this do not count: jobs take turns then.
constexpr uint64_t kEqualNanoseconds = 200'000;
// Whoever comes to work again is so far ahead of those that are at work, and
// takes a place at once where this makes such a difference.
constexpr uint64_t kCreditNanoseconds = 4'000'000;
constexpr uint64_t kPreemptNanoseconds = 1'000'000;
constexpr uint64_t kBackgroundFactor = 4;
// Runs of one user that may be paused beside those that go on.
constexpr int kMaxPausedRuns = 8;

uint64_t Now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          Clock::now().time_since_epoch())
          .count());
}

// Moves an element behind those after it.
template <typename T>
void MoveToEnd(std::vector<T>& elements, const T& element) {
  const auto at = std::find(elements.begin(), elements.end(), element);
  std::rotate(at, at + 1, elements.end());
}

// The first of `elements` that `may` be chosen and has used as little as the
// others, or null.
template <typename T, typename May, typename Used>
T* ChooseLeast(const std::vector<T*>& elements, const May& may,
               const Used& used) {
  uint64_t least = UINT64_MAX;
  for (T* const element : elements) {
    if (used(*element) < least && may(*element)) least = used(*element);
  }
  if (least == UINT64_MAX) return nullptr;
  for (T* const element : elements) {
    if (used(*element) - least < kEqualNanoseconds && used(*element) >= least &&
        may(*element)) {
      return element;
    }
  }
  return nullptr;
}

uint64_t LessCredit(uint64_t used) {
  return used - std::min(used, kCreditNanoseconds);
}

}  // namespace

class HostThreadPool::Worker final : public HostRun {
 public:
  // For the calling thread.
  explicit Worker(HostThreadPool* pool) : pool_(pool) {
    if (pthread_getcpuclockid(pthread_self(), &cpu_clock_) != 0) std::abort();
    charged_until = UsedNanoseconds();
  }

  // Processor time, so that a run does not pay for what other processes take
  // while it waits for a core.
  uint64_t UsedNanoseconds() const {
    timespec time;
    if (clock_gettime(cpu_clock_, &time) != 0) std::abort();
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(time.tv_nsec);
  }

  bool Pause() override { return pool_->PauseRun(this); }

  // Guarded by the pool's mutex.
  Job* job = nullptr;
  uint64_t slice_start = 0;
  // Of UsedNanoseconds. What a thread spends between two runs is charged to the
  // second.
  uint64_t charged_until = 0;
  bool is_paused = false;
  Worker* next_paused = nullptr;
  std::condition_variable resumed;

 private:
  HostThreadPool* const pool_;
  clockid_t cpu_clock_;
};

HostThreadPool::Job::Job(HostThreadPool* pool, HostUser user)
    : pool_(pool),
      share_(pool->Register(user)),
      max_started_(pool->num_threads()) {}

HostThreadPool::Job::~Job() { pool_->Unregister(this); }

HostThreadPool::HostThreadPool(int num_threads,
                               std::chrono::milliseconds keep_thread)
    : num_threads_(num_threads), keep_thread_(keep_thread) {
  std::lock_guard lock(mutex_);
  while (num_live_threads_ < num_threads_) {
    if (AddThread()) continue;
    std::fprintf(stderr,
                 "no thread of %d for the host backend: the limit of "
                 "threads is too low\n",
                 num_threads_);
    std::abort();
  }
  ticker_ = std::thread([this] { RunTicker(); });
}

HostThreadPool::~HostThreadPool() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  ticker_wakes_.notify_all();
  ticker_.join();
  {
    std::unique_lock lock(mutex_);
    run_ended_.wait(lock, [this] { return threads_.empty(); });
  }
  for (std::thread& thread : ended_threads_) thread.join();
}

int HostThreadPool::num_live_threads() const {
  std::lock_guard lock(mutex_);
  return num_live_threads_;
}

bool HostThreadPool::AddThread() {
  for (std::thread& thread : ended_threads_) thread.join();
  ended_threads_.clear();
  // The lists grow here, so that the thread itself allocates nothing.
  running_.reserve(static_cast<size_t>(num_live_threads_) + 1);
  threads_.emplace_back();
  const auto self = std::prev(threads_.end());
  absl::StatusOr<std::thread> thread = StartThread([this, self] {
    pthread_setname_np(pthread_self(), "datasetd-host");
    Worker worker(this);
    HostRun::current = &worker;
    Work(&worker);
    std::lock_guard ending(mutex_);
    ended_threads_.splice(ended_threads_.end(), threads_, self);
    run_ended_.notify_all();
  });
  if (!thread.ok()) {
    threads_.pop_back();
    return false;
  }
  *self = *std::move(thread);
  ++num_live_threads_;
  return true;
}

HostThreadPool::Share* HostThreadPool::Register(const HostUser& user) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Share>& share = shares_[user];
  if (share == nullptr) {
    share = std::make_unique<Share>(user);
    ready_.reserve(shares_.size());
  }
  ++share->num_jobs;
  share->ready.reserve(static_cast<size_t>(share->num_jobs));
  return share.get();
}

void HostThreadPool::Unregister(Job* job) {
  std::unique_lock lock(mutex_);
  run_ended_.wait(lock, [job] { return job->num_started_ == 0; });
  Share* const share = job->share_;
  if (--share->num_jobs > 0) return;
  // A user who comes back has used what others have, at least.
  shares_.erase(share->user);
}

bool HostThreadPool::HasFreePlace() const {
  return static_cast<int>(running_.size()) < num_threads_;
}

bool HostThreadPool::CanStart(const Job& job) const {
  if (job.first_paused_ != nullptr) return true;
  return job.num_runs_wanted_ > 0 && job.num_started_ < job.max_started_ &&
         job.share_->num_started < num_threads_ + kMaxPausedRuns;
}

HostThreadPool::Choice HostThreadPool::Choose() {
  const auto may_start = [this](const Job& job) { return CanStart(job); };
  Choice choice;
  choice.share = ChooseLeast(
      ready_,
      [&](const Share& share) {
        return std::any_of(share.ready.begin(), share.ready.end(),
                           [&](const Job* job) { return CanStart(*job); });
      },
      [](const Share& share) { return share.used_nanoseconds; });
  if (choice.share == nullptr) return choice;
  choice.job = ChooseLeast(choice.share->ready, may_start, [](const Job& job) {
    return job.used_nanoseconds_;
  });
  return choice;
}

// The job becomes one of those that wait. What it did not use while it had no
// work is lost, but for the credit.
void HostThreadPool::MakeReady(Job* job) {
  if (job->is_ready_) return;
  Share* const share = job->share_;
  if (job->num_started_ == 0) {
    ChargeAll();
    uint64_t least_user = UINT64_MAX;
    uint64_t least_job = UINT64_MAX;
    const auto look_at = [&](const Job* other) {
      if (other->share_ == share) {
        least_job = std::min(least_job, other->used_nanoseconds_);
      } else {
        least_user = std::min(least_user, other->share_->used_nanoseconds);
      }
    };
    for (const Worker* const worker : running_) look_at(worker->job);
    for (const Share* const other : ready_) {
      if (other == share) {
        for (const Job* const sibling : share->ready) look_at(sibling);
      } else {
        least_user = std::min(least_user, other->used_nanoseconds);
      }
    }
    if (least_job != UINT64_MAX) {
      share->floor_nanoseconds = std::max(share->floor_nanoseconds, least_job);
    } else {
      if (least_user != UINT64_MAX) {
        floor_nanoseconds_ = std::max(floor_nanoseconds_, least_user);
      }
      share->used_nanoseconds =
          std::max(share->used_nanoseconds, LessCredit(floor_nanoseconds_));
    }
    job->used_nanoseconds_ =
        std::max(job->used_nanoseconds_, LessCredit(share->floor_nanoseconds));
  }
  job->is_ready_ = true;
  if (share->ready.empty()) ready_.push_back(share);
  share->ready.push_back(job);
}

// The job has started or ended something.
void HostThreadPool::UpdateReady(Job* job) {
  if (!job->is_ready_ || job->num_runs_wanted_ > 0 ||
      job->first_paused_ != nullptr) {
    return;
  }
  job->is_ready_ = false;
  Share* const share = job->share_;
  std::erase(share->ready, job);
  if (share->ready.empty()) std::erase(ready_, share);
}

void HostThreadPool::Schedule(Job* job, int num_runs) {
  if (num_runs == 0) return;
  int num_free = 0;
  {
    std::lock_guard lock(mutex_);
    MakeReady(job);
    job->num_runs_wanted_ += num_runs;
    num_free = num_threads_ - static_cast<int>(running_.size());
    if (num_free <= 0) {
      Preempt(*job);
      WakeTicker();
    }
  }
  for (int i = 0; i < num_runs && i < num_free; ++i) has_work_.notify_one();
}

void HostThreadPool::LimitRuns(Job* job, int num_runs) {
  std::lock_guard lock(mutex_);
  job->max_started_ = std::min(job->max_started_, num_runs);
}

void HostThreadPool::Stop(Job* job) {
  std::lock_guard lock(mutex_);
  job->is_stopped_ = true;
  while (job->first_paused_ != nullptr) Resume(job->first_paused_);
  UpdateReady(job);
  for (Worker* const worker : running_) {
    if (worker->job == job) worker->SetWish(HostRun::kPause);
  }
}

void HostThreadPool::RequestProgress() {
  std::lock_guard lock(mutex_);
  for (Worker* const worker : running_) worker->SetWish(HostRun::kPause);
}

void HostThreadPool::StartRun(Worker* worker, const Choice& choice) {
  Job* const job = choice.job;
  --job->num_runs_wanted_;
  ++job->num_started_;
  ++choice.share->num_started;
  UpdateReady(job);
  worker->job = job;
  worker->slice_start = Now();
  worker->SetWish(job->is_stopped_ ? HostRun::kPause : HostRun::kGoOn);
  running_.push_back(worker);
  WakeTicker();
}

void HostThreadPool::EndRun(Worker* worker, uint64_t used_nanoseconds) {
  num_pieces_.fetch_add(1, std::memory_order_relaxed);
  Charge(worker, used_nanoseconds);
  std::erase(running_, worker);
  Job* const job = worker->job;
  Share* const share = job->share_;
  worker->job = nullptr;
  if (--job->num_started_ == 0) run_ended_.notify_all();
  if (--share->num_started > 0 || !share->ready.empty()) return;
  share->floor_nanoseconds =
      std::max(share->floor_nanoseconds, job->used_nanoseconds_);
  if (!running_.empty() || num_paused_ > 0 || !ready_.empty()) return;
  floor_nanoseconds_ = std::max(floor_nanoseconds_, share->used_nanoseconds);
}

// Lets the job's first paused run go on.
void HostThreadPool::Resume(Worker* worker) {
  Job* const job = worker->job;
  job->first_paused_ = worker->next_paused;
  if (job->first_paused_ == nullptr) job->last_paused_ = nullptr;
  --num_paused_;
  worker->is_paused = false;
  worker->slice_start = Now();
  running_.push_back(worker);
  worker->resumed.notify_one();
}

void HostThreadPool::Work(Worker* worker) {
  std::unique_lock lock(mutex_);
  bool was_kept = false;
  while (true) {
    const Choice choice = HasFreePlace() ? Choose() : Choice();
    if (choice.job == nullptr) {
      const bool is_surplus = num_live_threads_ - num_paused_ > num_threads_;
      if (is_stopping_ || (was_kept && is_surplus)) {
        // While the mutex is held, so that no other thread counts this one.
        --num_live_threads_;
        return;
      }
      if (is_surplus) {
        was_kept =
            has_work_.wait_for(lock, keep_thread_) == std::cv_status::timeout;
      } else {
        has_work_.wait(lock);
      }
      continue;
    }
    was_kept = false;
    MoveToEnd(choice.share->ready, choice.job);
    MoveToEnd(ready_, choice.share);
    if (choice.job->first_paused_ != nullptr) {
      Resume(choice.job->first_paused_);
      UpdateReady(choice.job);
      WakeTicker();
      continue;
    }
    StartRun(worker, choice);
    lock.unlock();
    worker->job->Run();
    // A system call, which others need not wait for.
    const uint64_t used = worker->UsedNanoseconds();
    lock.lock();
    EndRun(worker, used);
  }
}

void HostThreadPool::Charge(Worker* worker, uint64_t used_nanoseconds) {
  // Another thread may have charged it for more meanwhile.
  if (used_nanoseconds <= worker->charged_until) return;
  const uint64_t elapsed = used_nanoseconds - worker->charged_until;
  worker->charged_until = used_nanoseconds;
  Job* const job = worker->job;
  job->used_nanoseconds_ += elapsed;
  job->share_->used_nanoseconds +=
      job->share_->user.is_background ? kBackgroundFactor * elapsed : elapsed;
}

void HostThreadPool::ChargeAll() {
  for (Worker* const worker : running_) {
    Charge(worker, worker->UsedNanoseconds());
  }
}

bool HostThreadPool::IsBetter(const Choice& choice, const Worker& worker,
                              uint64_t granularity) const {
  if (choice.job == nullptr || choice.job == worker.job) return false;
  if (choice.share != worker.job->share_) {
    return choice.share->used_nanoseconds + granularity <
           worker.job->share_->used_nanoseconds;
  }
  return choice.job->used_nanoseconds_ + granularity <
         worker.job->used_nanoseconds_;
}

bool HostThreadPool::IsContended() const {
  if (ready_.empty() || HasFreePlace()) return false;
  const Job* const first = ready_.front()->ready.front();
  if (ready_.size() > 1 || ready_.front()->ready.size() > 1) return true;
  return std::any_of(
      running_.begin(), running_.end(),
      [first](const Worker* worker) { return worker->job != first; });
}

void HostThreadPool::WakeTicker() {
  if (is_ticking_ || !IsContended()) return;
  is_ticking_ = true;
  ticker_wakes_.notify_one();
}

// A job has come to a full house: takes the place of who is far ahead of it.
void HostThreadPool::Preempt(const Job& job) {
  if (!CanStart(job)) return;
  const Choice choice = {job.share_, const_cast<Job*>(&job)};
  Worker* furthest = nullptr;
  for (Worker* const worker : running_) {
    if (!IsBetter(choice, *worker, kPreemptNanoseconds)) continue;
    const auto key = [](const Worker& w) {
      return std::pair(w.job->share_->used_nanoseconds,
                       w.job->used_nanoseconds_);
    };
    if (furthest == nullptr || key(*furthest) < key(*worker)) {
      furthest = worker;
    }
  }
  if (furthest != nullptr) furthest->SetWish(HostRun::kPause);
}

bool HostThreadPool::PauseRun(Worker* worker) {
  std::unique_lock lock(mutex_);
  num_pieces_.fetch_add(1, std::memory_order_relaxed);
  Job* const job = worker->job;
  if (job->is_stopped_) return false;
  worker->SetWish(HostRun::kGoOn);
  ChargeAll();
  const Choice choice = Choose();
  if (!IsBetter(choice, *worker, 0)) return true;
  // Somebody must do the work instead.
  if (num_live_threads_ - num_paused_ <= num_threads_ && !AddThread()) {
    return true;
  }
  std::erase(running_, worker);
  ++num_paused_;
  worker->is_paused = true;
  worker->next_paused = nullptr;
  (job->first_paused_ == nullptr ? job->first_paused_
                                 : job->last_paused_->next_paused) = worker;
  job->last_paused_ = worker;
  MakeReady(job);
  if (choice.job->first_paused_ != nullptr) {
    Resume(choice.job->first_paused_);
    UpdateReady(choice.job);
  } else {
    has_work_.notify_one();
  }
  WakeTicker();
  worker->resumed.wait(lock, [worker] { return !worker->is_paused; });
  return !job->is_stopped_;
}

void HostThreadPool::RunTicker() {
  pthread_setname_np(pthread_self(), "datasetd-tick");
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (!IsContended()) {
      is_ticking_ = false;
      ticker_wakes_.wait(lock, [this] { return is_ticking_ || is_stopping_; });
      continue;
    }
    ticker_wakes_.wait_for(lock, kTick, [this] { return is_stopping_; });
    const uint64_t now = Now();
    ChargeAll();
    const Choice choice = Choose();
    for (Worker* const worker : running_) {
      if (now - worker->slice_start < kSliceNanoseconds ||
          !IsBetter(choice, *worker, 0)) {
        continue;
      }
      worker->SetWish(worker->wish() == HostRun::kGoOn ? HostRun::kEndAtSample
                                                       : HostRun::kPause);
    }
  }
}

}  // namespace datasetd
