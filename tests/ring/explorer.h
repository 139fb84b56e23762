// Explorer runs a small concurrent program under every interleaving of its
// accesses to shared words, and reports the first schedule that breaks it.
//
// A Model holds the program: its constructor makes the shared objects
// (ModelAtomic, ModelFutex, ModelEvent) and spawns the model threads. Every
// access to a shared object is a scheduling point; between two of them a thread
// runs undisturbed. Sequential consistency is explored: memory orders are
// ignored.
//
// The search is depth first. To go back, the model is made anew and the
// schedule's prefix is replayed. A state is the hash of all shared words, of
// the plain memory registered, and, per thread, of what it has read since its
// last checkpoint and of what it waits for; a state seen before is not entered
// again. So a loop that changes nothing ends the path, provided that it calls
// Checkpoint.
//
// These break a schedule: a failed Check; a state in which every thread waits
// (deadlock, lost wake-up); a state from which no schedule at all ends
// (livelock). A schedule ends when every foreground thread has finished.
//
// REQUIRES of the code in model threads: deterministic but for Choose; locals
// are trivially destructible, since an abandoned path is not unwound.
//
// Not thread-safe: the whole search runs on the calling thread.

#ifndef DATASETD_TESTS_RING_EXPLORER_H_
#define DATASETD_TESTS_RING_EXPLORER_H_

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace datasetd::testing {

// A program to explore. Made anew for every path, by the same factory.
class Model {
 public:
  virtual ~Model() = default;
  // Called when a schedule has ended; may call Explorer::Check.
  virtual void CheckEnd() {}
};

enum class ThreadKind {
  kForeground,
  // Need not finish for a schedule to end.
  kBackground,
};

struct ExploreOptions {
  // Over these the result is a violation: the search was not exhaustive.
  uint64_t max_states = 4'000'000;
  size_t max_depth = 100'000;
};

struct ExploreResult {
  bool ok() const { return violation.empty(); }
  // "12 states, ..." in one line.
  std::string Statistics() const;

  std::string violation;  // empty: every schedule was explored and is good
  std::string schedule;   // of the violation, one access per line
  uint64_t num_states = 0;
  uint64_t num_transitions = 0;
  uint64_t num_replays = 0;
  uint64_t num_ends = 0;  // distinct states in which a schedule ended
  size_t max_depth = 0;   // steps of the longest path
};

class Explorer {
 public:
  using ModelFactory = std::function<std::unique_ptr<Model>()>;

  static ExploreResult Explore(const ModelFactory& factory,
                               const ExploreOptions& options = {});

  // The explorer that runs now. REQUIRES: called from a model.
  static Explorer* Current() { return current_; }

  // For a model's constructor.
  void Spawn(std::string_view name, ThreadKind kind,
             std::function<void()> body);
  // `size` bytes at `data` become part of the state. They have no padding and
  // outlive the model's threads. A multiple of 8.
  void AddPlain(const void* data, size_t size);

  // For model threads.

  // Ends the exploration with `violation` unless `condition`.
  void Check(bool condition, std::string_view violation);
  // The thread's whole local state, its place in the code included, is a
  // function of `local_state`: what it has read before no longer counts.
  void Checkpoint(uint64_t local_state);
  // For Checkpoint and Observe. `size` is a multiple of 8; no padding.
  static uint64_t HashOf(const void* data, size_t size);
  // Any number in [0, num_options): every one is explored.
  uint32_t Choose(uint32_t num_options, std::string_view what);

  // For shared objects.

  // A word of the state, 0 at first. Returns its index.
  uint32_t AddWord() {
    words_.push_back(0);
    return static_cast<uint32_t>(words_.size() - 1);
  }
  void SetWordName(uint32_t word, std::string name);
  uint64_t word(uint32_t index) const { return words_[index]; }
  void set_word(uint32_t index, uint64_t value);

  // Lets others run before the access that the caller makes next. Does nothing
  // in a model's constructor.
  void Point(std::string_view operation, uint32_t word);
  // The thread has read `value`.
  void Observe(uint64_t value);
  // Blocks the thread until Wake(word).
  void Sleep(uint32_t word);
  void Wake(uint32_t word);
  // Blocks the thread while the word equals `value`.
  void AwaitChange(uint32_t word, uint64_t value);

 private:
  enum class ThreadState : uint8_t {
    kRunnable,
    kSleeping,        // until Wake(word)
    kAwaitingChange,  // while word == value
    kFinished,
  };

  // A thread's stack, on which paths begin again and again.
  struct Stack {
    std::unique_ptr<char[]> bytes;
    bool is_started = false;
    ucontext_t context;    // of its first start
    void* jump_buffer[5];  // of the others
  };

  struct Fiber {
    // Saves where the caller is, and goes on where `next` was or begins on its
    // stack.
    void SwitchTo(Fiber* next);
    // Not null: it has not begun.
    Stack* stack = nullptr;

    void* jump_buffer[5] = {};
  };

  struct Thread {
    std::string name;
    ThreadKind kind;
    std::function<void()> body;
    ThreadState state = ThreadState::kRunnable;
    uint32_t word = 0;
    uint64_t value = 0;
    uint32_t num_options = 1;  // more: it is at a Choose
    uint32_t option = 0;       // the answer to it
    uint64_t history = 0;
    std::string_view operation;  // what it does when it is run next
    uint32_t operation_word = 0;
    Fiber fiber;
  };

  struct Step {
    uint16_t thread;
    uint16_t option;
  };

  // A state on the current path.
  struct Frame {
    uint32_t state;
    size_t first_alternative;
    uint32_t num_alternatives;
    uint32_t next;  // the alternative to take next
  };

  // How a state was first reached.
  struct Origin {
    uint32_t parent;
    Step step;
  };

  enum class RunEnd { kNone, kPruned, kGoal, kViolation };

  Explorer(const ModelFactory& factory, const ExploreOptions& options);
  ~Explorer();

  void ExploreAll();
  void FindLivelock();
  // Makes the model and runs it until the path ends.
  void RunPath();
  // Runs `steps` with a trace, to tell what they do.
  void Retrace(const std::vector<Step>& steps);

  // Called by the running thread when it is at a point, asleep or finished:
  // picks the next step and switches to its thread.
  void Decide();
  // False if the path ends here.
  bool NextStep(Step* step);
  bool IsEnabled(const Thread& thread) const;
  bool IsGoal() const;
  uint64_t StateHash() const;
  void Fail(std::string violation);
  std::vector<Step> StepsTo(uint32_t state) const;
  void Trace(const Thread& thread, uint32_t option);

  void AddStack();
  static void StackMain(unsigned index);
  static void ThreadMain(unsigned index);

  inline static Explorer* current_ = nullptr;

  const ModelFactory& factory_;
  const ExploreOptions options_;
  ExploreResult result_;

  // The search.
  absl::flat_hash_map<uint64_t, uint32_t> state_ids_;
  std::vector<Origin> origins_;  // by state
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
  std::vector<uint32_t> goals_;
  std::vector<Frame> path_;
  std::vector<Step> alternatives_;  // of the frames of path_

  // The run.
  std::vector<Thread> threads_;
  std::vector<std::unique_ptr<Stack>> stacks_;  // by thread
  std::vector<uint64_t> words_;
  uint64_t words_hash_ = 0;
  std::vector<std::string> word_names_;  // while tracing
  struct Plain {
    const void* data;
    size_t size;
  };
  std::vector<Plain> plain_;
  int running_ = -1;  // index of the thread, -1: none
  size_t depth_ = 0;  // steps taken
  RunEnd run_end_ = RunEnd::kNone;
  Fiber main_fiber_;

  // Retracing.
  const std::vector<Step>* retraced_ = nullptr;
  std::string trace_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_RING_EXPLORER_H_
