#include "tests/ring/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "tests/ring/model_atomic.h"
#include "tests/ring/model_wait.h"

namespace datasetd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <typename ModelType, typename... Args>
ExploreResult ExploreModel(Args... args) {
  return Explorer::Explore(
      [=] { return std::make_unique<ModelType>(args...); });
}

// Each of two threads stores its word and loads the other's.
using Outcomes = std::set<std::pair<uint32_t, uint32_t>>;

class StoreBuffer : public Model {
 public:
  explicit StoreBuffer(Outcomes* outcomes) : outcomes_(outcomes) {
    Explorer::Current()->AddPlain(seen_, sizeof(seen_));
    for (int i = 0; i < 2; ++i) {
      Explorer::Current()->Spawn("thread", ThreadKind::kForeground, [this, i] {
        word_[i].store(1);
        seen_[i] = word_[1 - i].load();
      });
    }
  }
  void CheckEnd() override { outcomes_->insert({seen_[0], seen_[1]}); }

 private:
  Outcomes* const outcomes_;
  ModelAtomic<uint32_t> word_[2];
  uint32_t seen_[2] = {9, 9};
};

TEST(ExplorerTest, FindsEveryOutcomeThatSequentialConsistencyAllows) {
  Outcomes outcomes;
  const ExploreResult result = ExploreModel<StoreBuffer>(&outcomes);
  EXPECT_TRUE(result.ok()) << result.violation;
  EXPECT_THAT(outcomes, ElementsAre(Pair(0, 1), Pair(1, 0), Pair(1, 1)));
  EXPECT_EQ(result.num_ends, 3u);
  EXPECT_EQ(result.max_depth, 6u);
}

// Two threads, each with `num_stores` stores to a word of its own.
class Independent : public Model {
 public:
  explicit Independent(uint32_t num_stores) {
    for (int i = 0; i < 2; ++i) {
      Explorer::Current()->Spawn("thread", ThreadKind::kForeground,
                                 [this, i, num_stores] {
                                   for (uint32_t j = 1; j <= num_stores; ++j)
                                     word_[i].store(j);
                                 });
    }
  }

 private:
  ModelAtomic<uint32_t> word_[2];
};

TEST(ExplorerTest, MeetsEveryPairOfPositionsOnce) {
  // Positions of a thread: not started, before each store, finished.
  const ExploreResult result = ExploreModel<Independent>(10u);
  EXPECT_TRUE(result.ok()) << result.violation;
  EXPECT_EQ(result.num_states, 12u * 12u);
  EXPECT_EQ(result.num_transitions, 2u * 11u * 12u);
  EXPECT_EQ(result.num_ends, 1u);
}

enum class Handshake {
  kPeterson,
  // Peterson's flags are set after the look at the other's.
  kFlagTooLate,
  // No turn: both may wait for each other for ever.
  kNoTurn,
};

class MutualExclusion : public Model {
 public:
  explicit MutualExclusion(Handshake handshake) {
    Explorer* const explorer = Explorer::Current();
    explorer->AddPlain(&num_inside_, sizeof(num_inside_));
    for (uint32_t i = 0; i < 2; ++i) {
      explorer->Spawn(
          "thread", ThreadKind::kForeground,
          [this, explorer, handshake, i] { Run(explorer, handshake, i); });
    }
  }

 private:
  void Run(Explorer* explorer, Handshake handshake, uint32_t self) {
    const uint32_t other = 1 - self;
    if (handshake != Handshake::kFlagTooLate) wants_[self].store(1);
    turn_.store(other);
    for (;;) {
      explorer->Checkpoint(self);
      if (wants_[other].load() == 0) break;
      if (handshake != Handshake::kNoTurn && turn_.load() == self) break;
    }
    if (handshake == Handshake::kFlagTooLate) wants_[self].store(1);
    ++num_inside_;
    inside_.store(1);
    explorer->Check(num_inside_ == 1, "both are inside");
    --num_inside_;
    wants_[self].store(0);
  }

  ModelAtomic<uint32_t> wants_[2];
  ModelAtomic<uint32_t> turn_;
  ModelAtomic<uint32_t> inside_;
  uint64_t num_inside_ = 0;
};

TEST(ExplorerTest, ProvesPetersonsLock) {
  const ExploreResult result =
      ExploreModel<MutualExclusion>(Handshake::kPeterson);
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
  EXPECT_GE(result.num_ends, 1u);
}

TEST(ExplorerTest, FindsBothInside) {
  const ExploreResult result =
      ExploreModel<MutualExclusion>(Handshake::kFlagTooLate);
  EXPECT_EQ(result.violation, "thread: both are inside");
  EXPECT_THAT(result.schedule, HasSubstr("thread: store"));
}

TEST(ExplorerTest, FindsLivelock) {
  const ExploreResult result =
      ExploreModel<MutualExclusion>(Handshake::kNoTurn);
  EXPECT_THAT(result.violation, HasSubstr("livelock"));
}

enum class SleepOrder { kFlagThenLook, kLookThenFlag };

// Dekker's handshake of a sleeper and a waker that saves the system call.
class Sleeper : public Model {
 public:
  explicit Sleeper(SleepOrder order) {
    work_.SetName("work");
    idle_.SetName("idle");
    Explorer::Current()->Spawn("sleeper", ThreadKind::kForeground,
                               [this, order] {
                                 if (order == SleepOrder::kFlagThenLook)
                                   idle_.store(1);
                                 if (work_.load() != 0) return;
                                 if (order == SleepOrder::kLookThenFlag)
                                   idle_.store(1);
                                 event_.Wait();
                               });
    Explorer::Current()->Spawn("waker", ThreadKind::kForeground, [this] {
      work_.store(1);
      if (idle_.load() != 0) event_.Write();
    });
  }

 private:
  ModelAtomic<uint32_t> work_;
  ModelAtomic<uint32_t> idle_;
  ModelEvent event_;
};

TEST(ExplorerTest, ProvesDekkersHandshake) {
  const ExploreResult result = ExploreModel<Sleeper>(SleepOrder::kFlagThenLook);
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
}

TEST(ExplorerTest, FindsLostWakeUp) {
  const ExploreResult result = ExploreModel<Sleeper>(SleepOrder::kLookThenFlag);
  EXPECT_EQ(result.violation, "deadlock: nothing wakes sleeper");
  EXPECT_EQ(result.schedule,
            "sleeper: start\n"
            "sleeper: load work, was 0\n"
            "waker: start\n"
            "waker: store work, was 0, now 1\n"
            "waker: load idle, was 0\n"
            "sleeper: store idle, was 0, now 1\n"
            "sleeper: epoll_wait eventfd, was 0");
}

// Words that belong together, read with and without a version around them.
class TwoWords : public Model {
 public:
  explicit TwoWords(bool is_versioned) {
    Explorer* const explorer = Explorer::Current();
    explorer->Spawn("writer", ThreadKind::kForeground, [this] {
      begun_.store(1);
      first_.store(1);
      second_.store(1);
      ended_.store(1);
    });
    explorer->Spawn("reader", ThreadKind::kForeground,
                    [this, explorer, is_versioned] {
                      const uint32_t ended = ended_.load();
                      const uint32_t first = first_.load();
                      const uint32_t second = second_.load();
                      if (is_versioned && begun_.load() != ended) return;
                      explorer->Check(first == second, "torn");
                    });
  }

 private:
  ModelAtomic<uint32_t> begun_;
  ModelAtomic<uint32_t> first_;
  ModelAtomic<uint32_t> second_;
  ModelAtomic<uint32_t> ended_;
};

TEST(ExplorerTest, FindsTornRead) {
  EXPECT_EQ(ExploreModel<TwoWords>(false).violation, "reader: torn");
}

TEST(ExplorerTest, ProvesVersionedRead) {
  const ExploreResult result = ExploreModel<TwoWords>(true);
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
}

enum class FutexUse { kCompares, kLoadsTooLate, kNobodyWakes };

class FutexWaiter : public Model {
 public:
  explicit FutexWaiter(FutexUse use) {
    Explorer::Current()->Spawn("waiter", ThreadKind::kForeground, [this, use] {
      for (;;) {
        Explorer::Current()->Checkpoint(0);
        uint32_t word = futex_.load();
        if (flag_.load() != 0) return;
        if (use == FutexUse::kLoadsTooLate) word = futex_.load();
        ModelFutexWait(futex_, word);
      }
    });
    Explorer::Current()->Spawn("waker", ThreadKind::kForeground, [this, use] {
      flag_.store(1);
      futex_.fetch_add(1);
      if (use != FutexUse::kNobodyWakes) ModelFutexWakeAll(futex_);
    });
  }

 private:
  ModelAtomic<uint32_t> flag_;
  ModelAtomic<uint32_t> futex_;
};

TEST(ExplorerTest, FutexThatComparesLosesNoWakeUp) {
  const ExploreResult result = ExploreModel<FutexWaiter>(FutexUse::kCompares);
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
}

TEST(ExplorerTest, FindsMisuseOfTheFutex) {
  for (const FutexUse use : {FutexUse::kLoadsTooLate, FutexUse::kNobodyWakes}) {
    EXPECT_EQ(ExploreModel<FutexWaiter>(use).violation,
              "deadlock: nothing wakes waiter");
  }
}

// An update by load and store loses one of two; by compare-exchange, none.
class Counter : public Model {
 public:
  explicit Counter(bool is_atomic) {
    for (int i = 0; i < 2; ++i) {
      Explorer::Current()->Spawn(
          "thread", ThreadKind::kForeground, [this, is_atomic] {
            uint64_t value = count_.load();
            if (!is_atomic) {
              count_.store(value + 1);
              return;
            }
            while (!count_.compare_exchange_weak(value, value + 1)) {
            }
          });
    }
  }
  void CheckEnd() override {
    Explorer::Current()->Check(count_.Peek() == 2, "an update was lost");
  }

 private:
  ModelAtomic<uint64_t> count_;
};

TEST(ExplorerTest, FindsLostUpdateAtTheEnd) {
  EXPECT_EQ(ExploreModel<Counter>(false).violation, "an update was lost");
  const ExploreResult result = ExploreModel<Counter>(true);
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
}

// Breaks on one combination of choices out of 27, made while another waits.
class Chooser : public Model {
 public:
  explicit Chooser(uint32_t forbidden) {
    Explorer* const explorer = Explorer::Current();
    explorer->Spawn("chooser", ThreadKind::kForeground,
                    [this, explorer, forbidden] {
                      uint32_t chosen = 0;
                      for (int i = 0; i < 3; ++i) {
                        chosen = 3 * chosen + explorer->Choose(3, "digit");
                      }
                      explorer->Check(chosen != forbidden, "forbidden");
                      go_.store(1);
                    });
    explorer->Spawn("waiter", ThreadKind::kBackground, [this] {
      go_.AwaitChange(0);
      go_.store(2);
    });
  }

 private:
  ModelAtomic<uint32_t> go_;
};

TEST(ExplorerTest, TakesEveryChoice) {
  for (uint32_t forbidden = 0; forbidden < 27; ++forbidden) {
    EXPECT_EQ(ExploreModel<Chooser>(forbidden).violation, "chooser: forbidden");
  }
  EXPECT_TRUE(ExploreModel<Chooser>(27u).ok());
}

TEST(ExplorerTest, SaysThatTheSearchWasCutShort) {
  const Explorer::ModelFactory factory = [] {
    return std::make_unique<Independent>(10);
  };
  EXPECT_EQ(Explorer::Explore(factory, {.max_states = 100}).violation,
            "more states than max_states");
  EXPECT_THAT(Explorer::Explore(factory, {.max_depth = 20}).violation,
              HasSubstr("longer than max_depth"));
}

}  // namespace
}  // namespace datasetd::testing
