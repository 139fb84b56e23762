// ModelAtomic stands in for std::atomic in code that an Explorer runs: every
// access is a scheduling point. Memory orders are taken and ignored.

#ifndef DATASETD_TESTS_RING_MODEL_ATOMIC_H_
#define DATASETD_TESTS_RING_MODEL_ATOMIC_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/ring/explorer.h"

namespace datasetd::testing {

// T is an unsigned integer. REQUIRES: made in a model's constructor.
template <typename T>
class ModelAtomic {
 public:
  ModelAtomic() : word_(Explorer::Current()->AddWord()) {}
  ModelAtomic(const ModelAtomic&) = delete;
  ModelAtomic& operator=(const ModelAtomic&) = delete;

  // For the printed schedule.
  void SetName(std::string name) {
    Explorer::Current()->SetWordName(word_, std::move(name));
  }

  T load(std::memory_order = std::memory_order_seq_cst) const {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("load", word_);
    const T value = static_cast<T>(explorer->word(word_));
    explorer->Observe(value);
    return value;
  }

  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("store", word_);
    explorer->set_word(word_, value);
  }

  T fetch_add(T value, std::memory_order = std::memory_order_seq_cst) {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("fetch_add", word_);
    const T old = static_cast<T>(explorer->word(word_));
    explorer->set_word(word_, static_cast<T>(old + value));
    explorer->Observe(old);
    return old;
  }

  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order = std::memory_order_seq_cst) {
    Explorer* const explorer = Explorer::Current();
    explorer->Point("compare_exchange", word_);
    const T old = static_cast<T>(explorer->word(word_));
    explorer->Observe(old);
    if (old != expected) {
      expected = old;
      return false;
    }
    explorer->set_word(word_, desired);
    return true;
  }
  // Never fails without a reason: the caller's loop would only repeat itself.
  bool compare_exchange_weak(T& expected, T desired,
                             std::memory_order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired);
  }

  // The value, and a change of it, in one step with the access before.
  T Peek() const { return static_cast<T>(Explorer::Current()->word(word_)); }
  void Poke(T value) { Explorer::Current()->set_word(word_, value); }

  // Blocks the thread while the value equals `value`, at no cost.
  void AwaitChange(T value) const {
    Explorer::Current()->AwaitChange(word_, value);
  }

  uint32_t word() const { return word_; }

 private:
  const uint32_t word_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_RING_MODEL_ATOMIC_H_
