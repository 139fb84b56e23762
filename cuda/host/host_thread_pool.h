// The threads of the host backend. Work comes as runs of a Job; a Job may be
// asked for several runs, which several threads then do at once.
//
// At most num_threads() runs go on at a time. Users take turns by the processor
// time that their runs have taken, and so do the jobs of a user. A run that
// continues while others wait is told so by its HostRun
// (cuda/kernels/program/host_checkpoint.h): first to return at the end of a
// sample, then to pause at the next checkpoint. A paused run keeps its thread,
// which blocks; another thread takes its place. Runs that were paused come
// before new runs of their job.
//
// A user's paused runs are limited, and with them the threads: a user who has
// too many starts no new run before one ends. Threads beyond num_threads() are
// made when they are needed first, and end after some seconds without work.
//
// Thread-safe. Schedule allocates nothing.

#ifndef DATASETD_CUDA_HOST_HOST_THREAD_POOL_H_
#define DATASETD_CUDA_HOST_HOST_THREAD_POOL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/kernels/program/host_checkpoint.h"

namespace datasetd {

// The user to whom a job's time is charged.
struct HostUser {
  uint32_t uid = 0;
  // Time counts four times, so that background work yields to other work.
  bool is_background = false;

  auto operator<=>(const HostUser&) const = default;
};

class HostThreadPool {
 private:
  class Worker;
  struct Share;

 public:
  class Job {
   public:
    // `pool` outlives the job.
    Job(HostThreadPool* pool, HostUser user);
    // REQUIRES: no run is wanted. Waits until the last one has returned.
    virtual ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // One of the runs. Called without locks, by several threads at once.
    virtual void Run() = 0;

   private:
    friend class HostThreadPool;
    HostThreadPool* const pool_;
    // Guarded by the pool's mutex.
    Share* const share_;
    uint64_t used_nanoseconds_ = 0;
    int num_runs_wanted_ = 0;
    int num_started_ = 0;  // going on or paused
    int max_started_;
    bool is_ready_ = false;  // in share_->ready
    bool is_stopped_ = false;
    Worker* first_paused_ = nullptr;
    Worker* last_paused_ = nullptr;
  };

  // A thread that took the place of a paused run stays for `keep_thread`
  // without work. REQUIRES: num_threads >= 1.
  explicit HostThreadPool(
      int num_threads,
      std::chrono::milliseconds keep_thread = std::chrono::seconds(10));
  // REQUIRES: no job is left.
  ~HostThreadPool();
  HostThreadPool(const HostThreadPool&) = delete;
  HostThreadPool& operator=(const HostThreadPool&) = delete;

  void Schedule(Job* job, int num_runs);

  // At most so many runs of the job are going on or paused.
  void LimitRuns(Job* job, int num_runs);

  // Runs of the job that go on are told to leave out the rest, for good; paused
  // ones go on at once.
  void Stop(Job* job);

  // Counts when a run ends, and when one that continues reaches a checkpoint
  // after RequestProgress: moves as long as no thread hangs.
  uint64_t num_pieces() const {
    return num_pieces_.load(std::memory_order_relaxed);
  }
  void RequestProgress();

  int num_threads() const { return num_threads_; }
  // Those that are paused or wait for work, too.
  int num_live_threads() const;

 private:
  // The jobs of a user.
  struct Share {
    explicit Share(const HostUser& of) : user(of) {}

    const HostUser user;
    int num_jobs = 0;
    uint64_t used_nanoseconds = 0;
    // The least time used by a job at work, or by the last one if none is.
    uint64_t floor_nanoseconds = 0;
    int num_started = 0;
    // Those with runs that are wanted or paused, the next first among equals.
    std::vector<Job*> ready;
  };

  // A run that may start or resume next.
  struct Choice {
    Share* share = nullptr;
    Job* job = nullptr;
  };

  Share* Register(const HostUser& user);
  void Unregister(Job* job);
  void Work(Worker* worker);
  void RunTicker();

  // These REQUIRE: mutex_ is held.
  bool AddThread();
  bool HasFreePlace() const;
  bool CanStart(const Job& job) const;
  Choice Choose();
  void MakeReady(Job* job);
  void UpdateReady(Job* job);
  void StartRun(Worker* worker, const Choice& choice);
  void EndRun(Worker* worker, uint64_t used_nanoseconds);
  void Resume(Worker* worker);
  // Charges the worker's run for the thread's time up to `used_nanoseconds`.
  void Charge(Worker* worker, uint64_t used_nanoseconds);
  void ChargeAll();
  bool IsBetter(const Choice& choice, const Worker& worker,
                uint64_t granularity) const;
  bool IsContended() const;
  void WakeTicker();
  void Preempt(const Job& job);
  // Blocks the worker's run while others come first. False if it is stopped.
  bool PauseRun(Worker* worker);

  const int num_threads_;
  const std::chrono::milliseconds keep_thread_;

  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable ticker_wakes_;
  std::condition_variable run_ended_;
  std::map<HostUser, std::unique_ptr<Share>> shares_;
  std::vector<Share*> ready_;       // those with ready jobs
  std::vector<Worker*> running_;    // at most num_threads_, but for Stop
  uint64_t floor_nanoseconds_ = 0;  // as a Share's, of the users
  int num_paused_ = 0;
  int num_live_threads_ = 0;
  bool is_ticking_ = false;
  bool is_stopping_ = false;
  std::atomic<uint64_t> num_pieces_ = 0;
  std::list<std::thread> threads_;
  std::list<std::thread> ended_threads_;
  std::thread ticker_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_HOST_HOST_THREAD_POOL_H_
