// Streams, events and captures of the emulated GPU. A stream is a queue with a
// thread of its own. Everything here is guarded by the mutex of Scheduling, but
// for what an operation does, which runs without it.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_STREAM_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_STREAM_H_

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulated_gpu/driver/error_plan.h"
#include "tests/emulated_gpu/driver/journal.h"
#include "tests/emulated_gpu/driver/kernel_engine.h"

namespace datasetd::emulated_driver {

class Stream;
struct Capture;

// Shared by all streams of the process.
struct Scheduling {
  std::mutex mutex;
  // Something completed, failed, or was let go.
  std::condition_variable changed;
  uint64_t seed = 0;
  int max_delay_us = 0;
  uint64_t num_streams = 0;
  ErrorPlan faults;
  Journal* journal = nullptr;
  // The process ends: nothing starts any more.
  bool is_ending = false;
};

struct Completion {
  bool is_done = false;
};

struct Operation {
  // "kernel", "copy", "set", "write", "host" or "event".
  const char* kind;
  // May run several times if a graph holds it. May be empty.
  std::function<KernelOutcome()> run;
};

// The part of a context that its streams use.
struct ContextState {
  uint64_t id = 0;
  int device = 0;
  // The first fault; every later call returns it.
  CUresult error = CUDA_SUCCESS;
  bool is_destroyed = false;
  std::shared_ptr<Stream> legacy;
  // Those of cuStreamCreate and the per-thread ones; not the legacy one.
  std::set<std::shared_ptr<Stream>> streams;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
  // Work that destroyed streams still have to do; blocking streams first.
  std::vector<std::shared_ptr<Completion>> blocking_leftovers;
  std::vector<std::shared_ptr<Completion>> leftovers;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // `context` outlives the stream's work.
  Stream(Scheduling& scheduling, ContextState& context, bool is_blocking,
         int priority);

  // Appends an operation, which runs after what the stream was given before and
  // after `waits`. REQUIRES: the stream captures nothing.
  std::shared_ptr<Completion> Give(
      Operation operation, std::vector<std::shared_ptr<Completion>> waits);

  // The completion of the last operation, or null.
  const std::shared_ptr<Completion>& last() const { return last_; }
  bool is_idle() const { return last_ == nullptr || last_->is_done; }
  bool is_running() const { return is_running_; }
  // Its thread ends when the queue is empty.
  void End();

  // For tests. While held, nothing starts but what Advance let.
  void Hold(bool is_held);
  // Lets run what the stream has been given, and waits until that is done or
  // waits for another stream; what is then left is held again.
  void Advance(std::unique_lock<std::mutex>& lock);

  ContextState& context() { return context_; }
  // In step with the legacy stream.
  bool is_blocking() const { return is_blocking_; }
  int priority() const { return priority_; }

  std::shared_ptr<Capture> capture;
  // In the capture: how many nodes of which stream come before the next one.
  std::map<const Stream*, uint64_t> clock;

 private:
  struct Queued {
    Operation operation;
    std::vector<std::shared_ptr<Completion>> waits;
    std::shared_ptr<Completion> completion;
    uint64_t number;
  };

  void Work();
  bool IsHeadReady() const;
  bool MayRunHead() const;
  void RunHead(std::unique_lock<std::mutex>& lock);

  Scheduling& scheduling_;
  ContextState& context_;
  const bool is_blocking_;
  const int priority_;
  std::mt19937_64 random_;
  std::deque<Queued> queue_;
  std::shared_ptr<Completion> last_;
  uint64_t num_given_ = 0;
  uint64_t num_allowed_ = 0;
  bool is_held_ = false;
  bool is_running_ = false;
  bool has_thread_ = false;
  bool is_ended_ = false;
};

struct Event {
  ContextState* context = nullptr;
  // The completion of the last record; null if there was none.
  std::shared_ptr<Completion> last;
  // Set if the last record was in a capture.
  std::shared_ptr<Capture> capture;
  std::map<const Stream*, uint64_t> clock;
};

struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::shared_ptr<Stream> origin;
  std::set<std::shared_ptr<Stream>> streams;
  std::vector<Operation> nodes;
  bool is_invalidated = false;
  bool has_ended = false;
};

struct Graph {
  std::vector<Operation> nodes;
};

// True on the thread of a stream that calls a host function.
bool IsInHostFunction();

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_STREAM_H_
