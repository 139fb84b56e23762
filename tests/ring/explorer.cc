#include "tests/ring/explorer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd::testing {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr uint32_t kNoWord = UINT32_MAX;

// The finalizer of SplitMix64.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Combine(uint64_t hash, uint64_t value) {
  return Mix(hash * 0x9e3779b97f4a7c15 + value + 1);
}

uint64_t HashOfWord(uint32_t word, uint64_t value) {
  // 0 for 0: a new word changes nothing.
  return value == 0 ? 0 : Combine(Mix(word + 1), value);
}

// In a function of its own, as the builtin demands.
[[noreturn, gnu::noinline]] void Jump(void** buffer) {
  __builtin_longjmp(buffer, 1);
}

}  // namespace

// swapcontext would do, but for its two system calls.
[[gnu::noinline]] void Explorer::Fiber::SwitchTo(Fiber* next) {
  if (__builtin_setjmp(jump_buffer) != 0) return;
  Stack* const stack = std::exchange(next->stack, nullptr);
  if (stack == nullptr) Jump(next->jump_buffer);
  if (stack->is_started) Jump(stack->jump_buffer);
  stack->is_started = true;
  setcontext(&stack->context);
}

std::string ExploreResult::Statistics() const {
  return absl::StrCat(num_states, " states, ", num_transitions,
                      " transitions, ", num_ends, " ends, depth ", max_depth,
                      ", ", num_replays, " replays");
}

ExploreResult Explorer::Explore(const ModelFactory& factory,
                                const ExploreOptions& options) {
  Explorer explorer(factory, options);
  explorer.ExploreAll();
  return std::move(explorer.result_);
}

Explorer::Explorer(const ModelFactory& factory, const ExploreOptions& options)
    : factory_(factory), options_(options) {
  current_ = this;
}

Explorer::~Explorer() { current_ = nullptr; }

void Explorer::Spawn(std::string_view name, ThreadKind kind,
                     std::function<void()> body) {
  Thread& thread = threads_.emplace_back();
  thread.name = name;
  thread.kind = kind;
  thread.body = std::move(body);
  thread.operation = "start";
  thread.operation_word = kNoWord;
  if (stacks_.size() < threads_.size()) AddStack();
  thread.fiber.stack = stacks_[threads_.size() - 1].get();
}

void Explorer::AddPlain(const void* data, size_t size) {
  plain_.push_back({data, size});
}

void Explorer::Check(bool condition, std::string_view violation) {
  if (condition) return;
  if (running_ < 0) {
    Fail(std::string(violation));
    return;
  }
  Fail(absl::StrCat(threads_[running_].name, ": ", std::string(violation)));
  // This thread is never run again.
  threads_[running_].fiber.SwitchTo(&main_fiber_);
}

void Explorer::Checkpoint(uint64_t local_state) {
  threads_[running_].history = Mix(local_state + 1);
}

uint32_t Explorer::Choose(uint32_t num_options, std::string_view what) {
  threads_[running_].num_options = num_options;
  Point(what, kNoWord);
  Thread& thread = threads_[running_];
  thread.num_options = 1;
  Observe(thread.option);
  return thread.option;
}

void Explorer::SetWordName(uint32_t word, std::string name) {
  if (retraced_ == nullptr) return;
  if (word_names_.size() <= word) word_names_.resize(word + 1);
  word_names_[word] = std::move(name);
}

void Explorer::set_word(uint32_t index, uint64_t value) {
  words_hash_ ^= HashOfWord(index, words_[index]) ^ HashOfWord(index, value);
  words_[index] = value;
  if (retraced_ != nullptr && running_ >= 0) {
    absl::StrAppend(&trace_, ", now ", value);
  }
}

void Explorer::Point(std::string_view operation, uint32_t word) {
  if (running_ < 0) return;
  Thread& thread = threads_[running_];
  thread.operation = operation;
  thread.operation_word = word;
  thread.history =
      Combine(thread.history, (uint64_t{word} << 8) ^ operation.size() ^
                                  uint64_t(operation[0]) << 40);
  Decide();
}

void Explorer::Observe(uint64_t value) {
  if (running_ < 0) return;
  Thread& thread = threads_[running_];
  thread.history = Combine(thread.history, value);
}

void Explorer::Sleep(uint32_t word) {
  Thread& thread = threads_[running_];
  thread.state = ThreadState::kSleeping;
  thread.word = word;
  thread.operation = "woken";
  thread.operation_word = word;
  Decide();
}

void Explorer::Wake(uint32_t word) {
  for (Thread& thread : threads_) {
    if (thread.state == ThreadState::kSleeping && thread.word == word) {
      thread.state = ThreadState::kRunnable;
    }
  }
}

void Explorer::AwaitChange(uint32_t word, uint64_t value) {
  if (words_[word] != value) return;
  Thread& thread = threads_[running_];
  thread.state = ThreadState::kAwaitingChange;
  thread.word = word;
  thread.value = value;
  thread.operation = "await change";
  thread.operation_word = word;
  Decide();
  threads_[running_].state = ThreadState::kRunnable;
}

bool Explorer::IsEnabled(const Thread& thread) const {
  switch (thread.state) {
    case ThreadState::kRunnable:
      return true;
    case ThreadState::kAwaitingChange:
      return words_[thread.word] != thread.value;
    case ThreadState::kSleeping:
    case ThreadState::kFinished:
      return false;
  }
  return false;
}

bool Explorer::IsGoal() const {
  return std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) {
    return t.kind == ThreadKind::kBackground ||
           t.state == ThreadState::kFinished;
  });
}

uint64_t Explorer::StateHash() const {
  uint64_t hash = words_hash_;
  for (const Thread& thread : threads_) {
    hash = Combine(hash, thread.history);
    hash = Combine(hash, static_cast<uint64_t>(thread.state) |
                             uint64_t{thread.num_options} << 8);
    if (thread.state == ThreadState::kSleeping ||
        thread.state == ThreadState::kAwaitingChange) {
      hash = Combine(hash, thread.word);
      hash = Combine(hash, thread.value);
    }
  }
  for (const Plain& plain : plain_) {
    hash = Combine(hash, HashOf(plain.data, plain.size));
  }
  return hash;
}

uint64_t Explorer::HashOf(const void* data, size_t size) {
  uint64_t hash = size;
  for (size_t i = 0; i + 8 <= size; i += 8) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(data) + i, sizeof(value));
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return Mix(hash);
}

void Explorer::Fail(std::string violation) {
  run_end_ = RunEnd::kViolation;
  if (result_.ok()) result_.violation = std::move(violation);
}

bool Explorer::NextStep(Step* step) {
  if (retraced_ != nullptr) {
    if (depth_ == retraced_->size()) return false;
    *step = (*retraced_)[depth_];
    return true;
  }
  if (depth_ < path_.size()) {
    const Frame& frame = path_[depth_];
    *step = alternatives_[frame.first_alternative + frame.next - 1];
    return true;
  }

  // The end of the known path: a state to look at.
  const auto [it, is_new] = state_ids_.try_emplace(
      StateHash(), static_cast<uint32_t>(origins_.size()));
  const uint32_t state = it->second;
  uint32_t parent = state;
  Step last = {};
  if (!path_.empty()) {
    const Frame& frame = path_.back();
    parent = frame.state;
    last = alternatives_[frame.first_alternative + frame.next - 1];
    edges_.emplace_back(parent, state);
  }
  if (!is_new) {
    run_end_ = RunEnd::kPruned;
    return false;
  }
  origins_.push_back({parent, last});
  if (IsGoal()) {
    goals_.push_back(state);
    run_end_ = RunEnd::kGoal;
    return false;
  }
  if (origins_.size() > options_.max_states) {
    Fail("more states than max_states");
    return false;
  }
  if (depth_ >= options_.max_depth) {
    Fail("a path longer than max_depth: does a loop lack a Checkpoint?");
    return false;
  }

  Frame frame = {state, alternatives_.size(), 0, 1};
  const auto add = [&](size_t index) {
    const Thread& thread = threads_[index];
    if (!IsEnabled(thread)) return;
    for (uint32_t option = 0; option < thread.num_options; ++option) {
      alternatives_.push_back(
          {static_cast<uint16_t>(index), static_cast<uint16_t>(option)});
    }
  };
  // The running thread first: the fewest switches.
  if (running_ >= 0) add(running_);
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (static_cast<int>(i) != running_) add(i);
  }
  frame.num_alternatives =
      static_cast<uint32_t>(alternatives_.size() - frame.first_alternative);
  if (frame.num_alternatives == 0) {
    std::string waiting;
    for (const Thread& thread : threads_) {
      if (thread.state == ThreadState::kFinished) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", thread.name);
    }
    Fail(absl::StrCat("deadlock: nothing wakes ", waiting));
    return false;
  }
  path_.push_back(frame);
  result_.max_depth = std::max(result_.max_depth, path_.size());
  *step = alternatives_[frame.first_alternative];
  return true;
}

void Explorer::Trace(const Thread& thread, uint32_t option) {
  absl::StrAppend(&trace_, trace_.empty() ? "" : "\n", thread.name, ": ",
                  std::string(thread.operation));
  const uint32_t word = thread.operation_word;
  if (thread.num_options > 1) {
    absl::StrAppend(&trace_, " -> ", option);
  } else if (word != kNoWord) {
    const bool is_named =
        word < word_names_.size() && !word_names_[word].empty();
    absl::StrAppend(&trace_, " ",
                    is_named ? word_names_[word] : absl::StrCat("word ", word),
                    ", was ", words_[word]);
  }
}

void Explorer::Decide() {
  const int self = running_;
  Step step;
  if (!NextStep(&step)) {
    running_ = -1;
    if (self >= 0) threads_[self].fiber.SwitchTo(&main_fiber_);
    return;  // to RunPath; a thread never comes here
  }
  ++depth_;
  Thread& next = threads_[step.thread];
  if (retraced_ != nullptr) Trace(next, step.option);
  next.option = step.option;
  running_ = step.thread;
  if (running_ == self) return;
  Fiber* const from = self >= 0 ? &threads_[self].fiber : &main_fiber_;
  from->SwitchTo(&next.fiber);
}

void Explorer::AddStack() {
  const auto index = static_cast<unsigned>(stacks_.size());
  Stack& stack = *stacks_.emplace_back(std::make_unique<Stack>());
  stack.bytes = std::make_unique<char[]>(kStackBytes);
  getcontext(&stack.context);
  stack.context.uc_stack.ss_sp = stack.bytes.get();
  stack.context.uc_stack.ss_size = kStackBytes;
  stack.context.uc_link = nullptr;
  makecontext(&stack.context, reinterpret_cast<void (*)()>(&StackMain), 1,
              index);
}

void Explorer::StackMain(unsigned index) {
  // Every path begins here. What an abandoned one has left on the stack is
  // overwritten.
  __builtin_setjmp(current_->stacks_[index]->jump_buffer);
  ThreadMain(index);
}

[[gnu::noinline]] void Explorer::ThreadMain(unsigned index) {
  Explorer* const explorer = current_;
  explorer->threads_[index].body();
  Thread& thread = explorer->threads_[index];
  thread.state = ThreadState::kFinished;
  thread.history = 0;
  explorer->Decide();
}

void Explorer::RunPath() {
  threads_.clear();
  words_.clear();
  words_hash_ = 0;
  plain_.clear();
  running_ = -1;
  depth_ = 0;
  run_end_ = RunEnd::kNone;
  const std::unique_ptr<Model> model = factory_();
  Decide();
  running_ = -1;
  if (run_end_ == RunEnd::kGoal) model->CheckEnd();
}

void Explorer::ExploreAll() {
  for (;;) {
    RunPath();
    ++result_.num_replays;
    if (!result_.ok()) break;
    while (!path_.empty() &&
           path_.back().next == path_.back().num_alternatives) {
      alternatives_.resize(path_.back().first_alternative);
      path_.pop_back();
    }
    if (path_.empty()) break;
    ++path_.back().next;
  }
  result_.num_states = origins_.size();
  result_.num_transitions = edges_.size();
  result_.num_ends = goals_.size();
  if (!result_.ok()) {
    std::vector<Step> steps;
    for (const Frame& frame : path_) {
      steps.push_back(alternatives_[frame.first_alternative + frame.next - 1]);
    }
    Retrace(steps);
    return;
  }
  FindLivelock();
}

void Explorer::FindLivelock() {
  const size_t num_states = origins_.size();
  // The edges by the state that they lead to.
  std::sort(edges_.begin(), edges_.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<size_t> first(num_states + 1, 0);
  for (const auto& edge : edges_) ++first[edge.second + 1];
  for (size_t i = 0; i < num_states; ++i) first[i + 1] += first[i];
  std::vector<bool> ends(num_states, false);
  std::vector<uint32_t> open = goals_;
  for (const uint32_t state : open) ends[state] = true;
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (size_t i = first[state]; i < first[state + 1]; ++i) {
      const uint32_t from = edges_[i].first;
      if (ends[from]) continue;
      ends[from] = true;
      open.push_back(from);
    }
  }
  const auto stuck = std::find(ends.begin(), ends.end(), false);
  if (stuck == ends.end()) return;
  result_.violation = "livelock: threads run, but no schedule ends any more";
  Retrace(StepsTo(static_cast<uint32_t>(stuck - ends.begin())));
}

std::vector<Explorer::Step> Explorer::StepsTo(uint32_t state) const {
  std::vector<Step> steps;
  while (origins_[state].parent != state) {
    steps.push_back(origins_[state].step);
    state = origins_[state].parent;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

void Explorer::Retrace(const std::vector<Step>& steps) {
  retraced_ = &steps;
  RunPath();
  retraced_ = nullptr;
  result_.schedule = std::move(trace_);
}

}  // namespace datasetd::testing
