// The blocking primitives of an Explorer's models: a futex and an eventfd.

#ifndef DATASETD_TESTS_RING_MODEL_WAIT_H_
#define DATASETD_TESTS_RING_MODEL_WAIT_H_

#include <cstdint>

#include "tests/ring/explorer.h"
#include "tests/ring/model_atomic.h"

namespace datasetd::testing {

// FUTEX_WAIT without a timeout: returns at once unless the word equals `value`,
// and else sleeps until the next wake.
inline void ModelFutexWait(const ModelAtomic<uint32_t>& word, uint32_t value) {
  Explorer* const explorer = Explorer::Current();
  explorer->Point("futex_wait", word.word());
  const bool sleeps = word.Peek() == value;
  explorer->Observe(sleeps);
  if (sleeps) explorer->Sleep(word.word());
}

// FUTEX_WAKE of all who wait.
inline void ModelFutexWakeAll(const ModelAtomic<uint32_t>& word) {
  Explorer* const explorer = Explorer::Current();
  explorer->Point("futex_wake", word.word());
  explorer->Wake(word.word());
}

// An eventfd that is registered edge-triggered and never read: Wait returns if
// it was written since the last return.
class ModelEvent {
 public:
  ModelEvent() { pending_.SetName("eventfd"); }

  void Write() {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("eventfd_write", pending_.word());
    pending_.Poke(1);
  }

  void Wait() {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("epoll_wait", pending_.word());
    pending_.AwaitChange(0);
    pending_.Poke(0);
  }

 private:
  ModelAtomic<uint32_t> pending_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_RING_MODEL_WAIT_H_
