// The threads of the host backend. Work comes as runs of a Job; a Job may be
// asked for several runs, which several threads then do at once.
//
// Jobs take turns: the one that was run goes to the end of the line.
// Thread-safe. Schedule allocates nothing.

#ifndef DATASETD_CUDA_HOST_THREAD_POOL_H_
#define DATASETD_CUDA_HOST_THREAD_POOL_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace datasetd {

class HostThreadPool {
 public:
  // REQUIRES: outlives the runs it was scheduled for.
  class Job {
   public:
    virtual ~Job() = default;
    // One of the runs. Called without locks, by several threads at once.
    virtual void Run() = 0;

   private:
    friend class HostThreadPool;
    // Guarded by the pool's mutex.
    int num_runs_wanted_ = 0;
    Job* next_ = nullptr;
  };

  // REQUIRES: num_threads >= 1.
  explicit HostThreadPool(int num_threads);
  // REQUIRES: no run is wanted or going on.
  ~HostThreadPool();
  HostThreadPool(const HostThreadPool&) = delete;
  HostThreadPool& operator=(const HostThreadPool&) = delete;

  void Schedule(Job* job, int num_runs);

  int num_threads() const { return static_cast<int>(threads_.size()); }

 private:
  void Work();
  void PushBack(Job* job);
  Job* PopFront();

  std::mutex mutex_;
  std::condition_variable has_work_;
  // The line of jobs that want runs.
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_HOST_THREAD_POOL_H_
