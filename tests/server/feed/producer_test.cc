#include "server/feed/producer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/require.h"
#include "cuda/backend/device_failure.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/feed_fixture.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::BatchBytes;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MakeTestFeed;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::TestFeed;
using ::datasetd::testing::TestFeedOptions;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// absl::Notification in a form that ThreadSanitizer sees.
class Signal {
 public:
  void Notify() {
    std::lock_guard lock(mutex_);
    is_notified_ = true;
    changed_.notify_all();
  }
  bool Await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return is_notified_; });
  }
  bool is_notified() {
    std::lock_guard lock(mutex_);
    return is_notified_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_notified_ = false;
};

void NoFailure(uint64_t, absl::Status status) {
  ADD_FAILURE() << "the device failed: " << status.ToString();
}

// Removes the feed, and completes launches until it is gone.
void RemoveAndWait(FakeBackend& backend, Producer& producer, Feed* feed) {
  Signal removed;
  producer.Remove(feed, [&] { removed.Notify(); });
  while (!removed.is_notified()) backend.CompleteNext();
}

// On a backend that calls, and one that must be polled.
class ProducerTest : public ::testing::TestWithParam<bool> {
 protected:
  void Start(FakeBackendOptions options = {},
             Producer::FailureFunction on_failure = NoFailure,
             Producer::ClockFunction clock = MonotonicNanoseconds) {
    options.needs_polling = GetParam();
    backend_.emplace(options);
    auto producer = Producer::Start(&*backend_, std::move(on_failure), clock);
    ASSERT_THAT(producer, IsOk());
    producer_ = *std::move(producer);
  }
  // To be removed by the test.
  TestFeed Add(TestFeedOptions options = {}) {
    options.on_done = producer_->on_done();
    TestFeed made = MakeTestFeed(&*backend_, options);
    producer_->Add(made.feed.get());
    return made;
  }
  void Remove(const TestFeed& made) {
    RemoveAndWait(*backend_, *producer_, made.feed.get());
  }
  // Runs launches until `count` batches are published.
  void CompleteUntil(const TestFeed& made, size_t count) {
    while (made.channel->num_published() < count) backend_->CompleteNext();
  }

  std::optional<FakeBackend> backend_;
  std::unique_ptr<Producer> producer_;
};

TEST_P(ProducerTest, FillsAFeedAndRefillsWhatIsReleased) {
  Start();
  const TestFeed made = Add();
  for (size_t released = 0; released < 200; ++released) {
    CompleteUntil(made, released + 1);
    made.channel->Release(made.channel->published()[released]);
  }
  const auto all = made.channel->published();
  for (size_t i = 0; i < 200; ++i) {
    ASSERT_EQ(all[i].batch.sequence, i + 1);
    ASSERT_EQ(all[i].batch.epoch, i / 3);
    ASSERT_EQ(all[i].batch.batch, i % 3);
  }
  backend_->CompleteAll();
  Remove(made);
}

TEST_P(ProducerTest, AMissingBlockStallsItsOwnFeedOnly) {
  Start();
  ClientOrder::Options options;
  options.num_samples = 10;
  options.batch_size = 4;
  options.capacity = 8;
  const auto order = std::make_shared<ClientOrder>(options);
  const TestFeed waiting = Add({.order = order});
  const TestFeed lively = Add();
  size_t num_lively = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i, ++num_lively) {
      CompleteUntil(lively, num_lively + 1);
      lively.channel->Release(lively.channel->published()[num_lively]);
    }
    ASSERT_THAT(waiting.channel->published(), SizeIs(round));
    const std::vector<uint32_t> sizes = {1};
    const std::vector<int64_t> indices = {static_cast<int64_t>(round % 10)};
    ASSERT_THAT(
        order->Append(
            {.start = {0, round}, .batch_sizes = sizes, .indices = indices}),
        IsOk());
    producer_->Wake();
    CompleteUntil(waiting, round + 1);
    waiting.channel->Release(waiting.channel->published()[round]);
  }
  backend_->CompleteAll();
  Remove(waiting);
  Remove(lively);
}

TEST_P(ProducerTest, ASilentClientStallsItsOwnFeedOnly) {
  Start();
  const TestFeed silent = Add();
  const TestFeed lively = Add();
  for (size_t released = 0; released < 100; ++released) {
    CompleteUntil(lively, released + 1);
    lively.channel->Release(lively.channel->published()[released]);
  }
  CompleteUntil(silent, 3);
  EXPECT_THAT(silent.channel->published(), SizeIs(3));
  Remove(silent);
  Remove(lively);
}

TEST_P(ProducerTest, TakesASeekWhileAsleep) {
  Start();
  const TestFeed made = Add();
  CompleteUntil(made, 3);  // all slots are out: it sleeps
  made.channel->Seek({.generation = 1, .epoch = 9, .batch = 1});
  made.channel->Release(made.channel->published()[0]);
  CompleteUntil(made, 4);
  const auto all = made.channel->published();
  EXPECT_EQ(all[3].batch.generation, 1);
  EXPECT_EQ(all[3].batch.epoch, 9);
  EXPECT_EQ(all[3].batch.batch, 1);
  EXPECT_THAT(BatchBytes(*made.feed, all[3]), ElementsAre(4, 5, 6, 7));
  Remove(made);
}

// Slots that are gathered on a GPU are filled although nothing wakes the
// thread.
TEST_P(ProducerTest, AFreeSlotIsNotLeftForEver) {
  Start({.max_batches_per_launch = 32, .is_host = false});
  const TestFeed made = Add({.num_slots = 12});
  CompleteUntil(made, 12);
  // The client neither waits nor releases another.
  made.channel->Release(made.channel->published()[0]);
  CompleteUntil(made, 13);
  Remove(made);
}

TEST_P(ProducerTest, ARemovedFeedGoesWhenItsWorkHasEnded) {
  Start();
  const TestFeed made = Add();
  while (backend_->num_pending_launches() < 3) {
  }
  Signal removed;
  producer_->Remove(made.feed.get(), [&] { removed.Notify(); });
  ASSERT_TRUE(made.channel->AwaitClosed());
  EXPECT_EQ(backend_->num_pending_launches(), 3);
  backend_->CompleteAll();
  ASSERT_TRUE(removed.Await());
  EXPECT_TRUE(made.feed->is_quiescent());
  EXPECT_THAT(made.channel->published(), SizeIs(0));
}

// Every launch takes as long as another.
template <uint64_t kStepNanoseconds>
uint64_t TickingClock() {
  static std::atomic<uint64_t> now = 0;
  return now += kStepNanoseconds;
}

TEST_P(ProducerTest, FeedsTakeTurns) {
  Start({.max_batches_per_launch = 1, .max_launches_in_flight = 2}, NoFailure,
        TickingClock<1000>);
  std::vector<TestFeed> feeds;
  for (uint64_t id = 1; id <= 4; ++id) {
    feeds.push_back(Add({.id = id, .num_slots = 8}));
  }
  // The last feed is not served later than the first by more than a round.
  CompleteUntil(feeds[3], 5);
  for (const TestFeed& made : feeds) {
    EXPECT_GE(made.channel->published().size(), 3);
  }
  for (const TestFeed& made : feeds) CompleteUntil(made, 8);
  for (const TestFeed& made : feeds) {
    Remove(made);
  }
}

TEST_P(ProducerTest, LaunchesThatDoNotEndTakeNoPlaceOfAnother) {
  Start({.max_batches_per_launch = 1,
         .max_launches_in_flight = 2,
         .takes_turns = true});
  std::vector<TestFeed> feeds;
  // Five of one user, and one of another. Nothing that they launch ends.
  for (uint64_t id = 1; id <= 6; ++id) {
    feeds.push_back(Add({.id = id, .uid = id <= 5 ? 1u : 2u, .num_slots = 8}));
  }
  const auto num_launches = [&](size_t feed) {
    return feeds[feed].feed->stats().num_launches.load();
  };
  for (size_t i = 0; i < feeds.size(); ++i) {
    while (num_launches(i) == 0) {
    }
  }
  while (num_launches(5) < 2) {
  }
  // Places beyond the first of each feed are the user's.
  EXPECT_LE(backend_->num_pending_launches(), 2 + 4 + 2);
  for (const TestFeed& made : feeds) {
    Remove(made);
  }
}

TEST_P(ProducerTest, AUsersManyFeedsDoNotCrowdOutAnothersOne) {
  Start({.max_batches_per_launch = 1, .max_launches_in_flight = 1}, NoFailure,
        TickingClock<10'000'000>);
  std::vector<TestFeed> feeds;
  constexpr size_t kMany = 12;
  for (uint64_t id = 0; id <= kMany; ++id) {
    feeds.push_back(
        Add({.id = id + 1, .uid = id == kMany ? 2u : 1u, .num_slots = 8}));
  }
  // By feeds, the last one had a thirteenth.
  CompleteUntil(feeds[kMany], 8);
  size_t num_others = 0;
  for (size_t i = 0; i < kMany; ++i) {
    num_others += feeds[i].channel->published().size();
  }
  EXPECT_LT(num_others, 8 * kMany / 2);
  for (const TestFeed& made : feeds) {
    Remove(made);
  }
}

// A clock that the tables of sample orders move, each by a millisecond: the
// epochs of the attackers' feeds, which have one batch each, and the first ones
// of the victim's.
class TableClock {
 public:
  // REQUIRES: the feeds outlive the producer.
  static void Set(std::vector<const Feed*> attackers, const Feed* victim) {
    attackers_ = std::move(attackers);
    victim_ = victim;
    num_victims_tables_ = 0;
  }
  // Before the victim is added.
  static void CountVictimsTables(uint64_t num) { num_victims_tables_ = num; }
  static uint64_t NumTables() {  // of the attackers
    uint64_t num_tables = 0;
    for (const Feed* const feed : attackers_) {
      num_tables += feed->stats().next_epoch.load();
    }
    return num_tables;
  }
  static uint64_t Now() {
    const uint64_t num_victims_tables =
        std::min(num_victims_tables_, victim_->stats().next_epoch.load());
    return (NumTables() + num_victims_tables) * 1'000'000;
  }

 private:
  inline static std::vector<const Feed*> attackers_;
  inline static const Feed* victim_ = nullptr;
  inline static uint64_t num_victims_tables_ = 0;
};

// A client that returns each batch at once, unless it is told to keep them.
class EagerChannel : public MemoryChannel {
 public:
  // With `backend`, whatever was launched in a round ends before the next.
  explicit EagerChannel(uint32_t num_slots, FakeBackend* backend = nullptr)
      : MemoryChannel(num_slots), num_slots_(num_slots), backend_(backend) {}

  void Keep(bool is_keeping) { is_keeping_ = is_keeping; }
  // The attackers' most tables between two batches of this client, less those
  // made while it kept all slots. REQUIRES: the feed was removed.
  uint64_t most_tables() const { return most_tables_; }

  void Publish(uint32_t slot, const ring::SlotDescriptor& batch) override {
    MemoryChannel::Publish(slot, batch);
    kept_.push_back({slot, batch});
    const uint64_t num_tables = TableClock::NumTables();
    most_tables_ = std::max(most_tables_, num_tables - num_tables_);
    num_tables_ = num_tables;
  }
  // The producer calls it in each round, before it looks for releases.
  std::optional<ring::SeekRequest> ReadSeek() override {
    if (backend_ != nullptr) backend_->CompleteAll();
    if (!is_keeping_) {
      if (kept_.size() == num_slots_) num_tables_ = TableClock::NumTables();
      for (const Published& published : kept_) Release(published);
      kept_.clear();
    }
    return MemoryChannel::ReadSeek();
  }

 private:
  const size_t num_slots_;
  FakeBackend* const backend_;
  std::atomic<bool> is_keeping_ = false;
  // Used by the producer's thread only.
  std::vector<Published> kept_;
  uint64_t num_tables_ = 0;
  uint64_t most_tables_ = 0;
};

// A victim and another user's many feeds, each batch of which needs a table of
// 65,536 samples. The parameter: whether the backend takes turns.
class OrderTurnsTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kNumAttackers = 16;
  static constexpr uint32_t kVictimsSlots = 3;
  // A round of launches ends after a millisecond: after a table, if the victim
  // was first. A second one may come before the victim's first batch.
  static constexpr uint64_t kMostTables = 2;

  OrderTurnsTest() {
    std::vector<const Feed*> attackers;
    for (uint64_t id = 1; id <= kNumAttackers; ++id) {
      attackers_.push_back(MakeTestFeed(&backend_,
                                        {.id = id,
                                         .uid = 1,
                                         .num_samples = 65536,
                                         .batch_size = 1,
                                         .num_slots = 64,
                                         .shuffle = true,
                                         .world_size = 65536},
                                        std::make_unique<EagerChannel>(64)));
      attackers.push_back(attackers_.back().get());
    }
    auto channel = std::make_unique<EagerChannel>(kVictimsSlots, &backend_);
    channel_ = channel.get();
    victim_ = MakeTestFeed(
        &backend_,
        {.id = 100, .uid = 2, .batch_size = 10, .num_slots = kVictimsSlots},
        std::move(channel));
    TableClock::Set(std::move(attackers), victim_.get());
    auto started = Producer::Start(&backend_, NoFailure, TableClock::Now);
    EXPECT_THAT(started, IsOk());
    producer_ = *std::move(started);
  }
  void Attack() {
    for (const auto& feed : attackers_) producer_->Add(feed.get());
  }
  // Ends all feeds.
  void RemoveAll() {
    for (const auto& feed : attackers_) {
      RemoveAndWait(backend_, *producer_, feed.get());
    }
    RemoveAndWait(backend_, *producer_, victim_.get());
  }

  FakeBackend backend_{
      {.max_batches_per_launch = 8, .takes_turns = GetParam()}};
  std::vector<std::unique_ptr<Feed>> attackers_;
  std::unique_ptr<Feed> victim_;
  EagerChannel* channel_ = nullptr;  // the victim's
  std::unique_ptr<Producer> producer_;
};

TEST_P(OrderTurnsTest, AnothersTablesDoNotKeepBatchesBack) {
  producer_->Add(victim_.get());
  Attack();
  ASSERT_TRUE(channel_->AwaitPublished(40));
  while (TableClock::NumTables() < 20) {
  }
  RemoveAll();
  EXPECT_LE(channel_->most_tables(), kMostTables);
}

TEST_P(OrderTurnsTest, TimeUsedWhileAloneIsNotPaidForLater) {
  TableClock::CountVictimsTables(100);
  producer_->Add(victim_.get());
  ASSERT_TRUE(channel_->AwaitPublished(100));
  channel_->Keep(true);
  while (victim_->stats().num_slots_held.load() < kVictimsSlots) {
  }
  Attack();
  while (TableClock::NumTables() < 10) {
  }
  const size_t num_published = channel_->published().size();
  channel_->Keep(false);
  ASSERT_TRUE(channel_->AwaitPublished(num_published + 10));
  RemoveAll();
  EXPECT_LE(channel_->most_tables(), kMostTables);
}

INSTANTIATE_TEST_SUITE_P(Backends, OrderTurnsTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "TakesTurns" : "RunsInOrder";
                         });

// As Linux before 5.11, which lacks epoll_pwait2.
void ForbidEpollPwait2(int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(code), code};
  Require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
          "the test may have a seccomp filter");
}

class OldKernelTest : public ::testing::TestWithParam<int> {};

TEST_P(OldKernelTest, TheThreadSleepsWithoutEpollPwait2) {
  EXPECT_EXIT(
      {
        ForbidEpollPwait2(GetParam());
        const auto wait = Producer::RealPollTime().wait;
        const FileDescriptor epoll(epoll_create1(0));
        const FileDescriptor wake(eventfd(0, EFD_NONBLOCK));
        epoll_event event = {};
        event.events = EPOLLIN | EPOLLET;
        Require(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) == 0,
                "an eventfd can be waited for");
        for (int i = 0; i < 2; ++i) {
          constexpr uint64_t kNanoseconds = 3'000'000;
          const uint64_t start = MonotonicNanoseconds();
          Require(wait(epoll.get(), &event, 1, kNanoseconds) == 0,
                  "no event comes");
          Require(MonotonicNanoseconds() - start >= kNanoseconds,
                  "the call waits as long as it is told");
        }
        Require(eventfd_write(wake.get(), 1) == 0, "an eventfd is written");
        Require(wait(epoll.get(), &event, 1, -1) == 1, "the event comes");
        Require(wait(epoll.get(), &event, 1, 0) == 0, "and comes once");
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Errors, OldKernelTest,
                         ::testing::Values(ENOSYS, EPERM),
                         [](const auto& info) {
                           return info.param == ENOSYS ? "Enosys" : "Eperm";
                         });

// A device whose launches, one after another, take as long as the test says, by
// a clock that goes on only while the producer sleeps.
class TimedDevice {
 public:
  TimedDevice(FakeBackend* backend, std::vector<uint64_t> nanoseconds)
      : backend_(backend), nanoseconds_(std::move(nanoseconds)) {}

  Producer::PollTime time() {
    return {.now = [this] { return now_; },
            .wait =
                [this](int epoll, epoll_event* events, int max_events,
                       int64_t timeout) {
                  if (timeout >= 0) Sleep(static_cast<uint64_t>(timeout));
                  return Producer::RealPollTime().wait(
                      epoll, events, max_events, timeout < 0 ? -1 : 0);
                }};
  }
  // For each launch, the time from its end to when the producer woke up.
  std::vector<uint64_t> latencies() {
    std::lock_guard lock(mutex_);
    return latencies_;
  }

 private:
  void Sleep(uint64_t timeout) {
    if (!is_running_ && backend_->num_pending_launches() > 0 &&
        next_ < nanoseconds_.size()) {
      is_running_ = true;
      end_ = now_ + nanoseconds_[next_];
    }
    now_ += timeout;
    if (!is_running_ || now_ < end_) return;
    {
      std::lock_guard lock(mutex_);
      latencies_.push_back(now_ - end_);
    }
    ++next_;
    is_running_ = false;
    backend_->CompleteNext();
  }

  FakeBackend* const backend_;
  const std::vector<uint64_t> nanoseconds_;
  // Used by the producer only.
  uint64_t now_ = 1;
  uint64_t end_ = 0;
  size_t next_ = 0;
  bool is_running_ = false;
  std::mutex mutex_;
  std::vector<uint64_t> latencies_;
};

TEST(ProducerPollTest, TheEndOfALongLaunchIsSeenAtOnce) {
  FakeBackend backend({.needs_polling = true, .max_launches_in_flight = 1});
  constexpr uint64_t kMillisecond = 1'000'000;
  constexpr size_t kLaunches = 20;
  std::vector<uint64_t> nanoseconds(kLaunches, 7 * kMillisecond + 12'345);
  for (size_t i = kLaunches / 2; i < kLaunches; ++i) {
    nanoseconds[i] = 31 * kMillisecond;
  }
  TimedDevice device(&backend, nanoseconds);
  auto started =
      Producer::Start(&backend, NoFailure, MonotonicNanoseconds, device.time());
  ASSERT_THAT(started, IsOk());
  const std::unique_ptr<Producer> producer = *std::move(started);
  const TestFeed made = MakeTestFeed(&backend, {.num_slots = 3});
  producer->Add(made.feed.get());
  for (size_t released = 0; released < kLaunches; ++released) {
    while (made.channel->published().size() <= released) {
    }
    made.channel->Release(made.channel->published()[released]);
  }
  const std::vector<uint64_t> latencies = device.latencies();
  ASSERT_GE(latencies.size(), kLaunches);
  for (size_t i = 0; i < kLaunches; ++i) {
    // Nothing is known of the first, and the other length is unexpected; from
    // there on each launch halves what is not known.
    const size_t num_known = i % (kLaunches / 2);
    EXPECT_LE(latencies[i], std::max(PollBackoff::kMinNanoseconds,
                                     PollBackoff::kMaxNanoseconds >> num_known))
        << "launch " << i;
  }
  RemoveAndWait(backend, *producer, made.feed.get());
}

TEST_P(ProducerTest, AFloodOfEmptyWakesIsThrottledAndHarmsNobody) {
  Start();
  const TestFeed hostile = Add();
  const TestFeed lively = Add();
  CompleteUntil(hostile, 3);
  CompleteUntil(lively, 3);
  while (producer_->num_throttled_wakes() == 0) {
    hostile.channel->WakeForNothing();
  }
  for (size_t released = 0; released < 50; ++released) {
    hostile.channel->WakeForNothing();
    CompleteUntil(lively, released + 1);
    lively.channel->Release(lively.channel->published()[released]);
  }
  // The hostile one is heard again.
  hostile.channel->Release(hostile.channel->published()[0]);
  CompleteUntil(hostile, 4);
  Remove(hostile);
  Remove(lively);
}

TEST_P(ProducerTest, AFailedDeviceIsReportedOnceAndFeedsAreClosed) {
  Signal failed;
  int num_failures = 0;
  absl::Status failure;
  Start({}, [&](uint64_t feed_id, absl::Status status) {
    EXPECT_EQ(feed_id, 0u);
    ++num_failures;
    failure = std::move(status);
    failed.Notify();
  });
  const TestFeed made = Add();
  // All three slots are published, so that the next launch is the one that the
  // release causes.
  CompleteUntil(made, 3);
  while (producer_->progress().has_running_launch) {
  }
  made.channel->Release(made.channel->published()[0]);
  while (!producer_->progress().has_running_launch) {
  }
  ASSERT_TRUE(backend_->FailNext(absl::InternalError("fell off the bus")));
  ASSERT_TRUE(failed.Await());
  ASSERT_TRUE(made.channel->AwaitClosed());
  const size_t num_published = made.channel->published().size();
  Remove(made);
  EXPECT_EQ(num_failures, 1);
  EXPECT_EQ(failure.message(),
            "fell off the bus; feeds with launches in flight: " +
                std::to_string(made.feed->id()));
  EXPECT_TRUE(IsDeviceFailure(failure));
  EXPECT_THAT(made.channel->published(), SizeIs(num_published));
}

TEST_P(ProducerTest, ARefusedLaunchEndsItsFeedOnly) {
  Signal failed;
  absl::Status failure;
  uint64_t failed_feed = 0;
  Start({}, [&](uint64_t feed_id, absl::Status status) {
    failed_feed = feed_id;
    failure = std::move(status);
    failed.Notify();
  });
  backend_->FailLaunch(2);
  const TestFeed made = Add();
  ASSERT_TRUE(failed.Await());
  EXPECT_FALSE(IsDeviceFailure(failure));
  EXPECT_EQ(failed_feed, made.feed->id());
  ASSERT_TRUE(made.channel->AwaitClosed());
  backend_->CompleteAll();
  Remove(made);
  EXPECT_THAT(made.channel->published(), SizeIs(0));

  const TestFeed other = Add();
  CompleteUntil(other, 1);
  Remove(other);
}

// Until what the producer says fulfils the condition.
template <typename Condition>
bool AwaitProgress(const Producer& producer, Condition condition) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition(producer.progress())) {
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

bool HasAnswered(const ProducerProgress& progress) {
  return progress.num_pings_answered == progress.num_pings;
}

TEST_P(ProducerTest, AnswersAPingWhileItSleepsForLackOfWork) {
  Start();
  for (uint64_t i = 1; i <= 10; ++i) {
    producer_->Ping();
    EXPECT_EQ(producer_->progress().num_pings, i);
    ASSERT_TRUE(AwaitProgress(*producer_, HasAnswered));
  }
  const TestFeed made = Add();
  CompleteUntil(made, 3);  // all slots are out: it sleeps
  producer_->Ping();
  EXPECT_TRUE(AwaitProgress(*producer_, HasAnswered));
  Remove(made);
}

TEST_P(ProducerTest, SaysThatItAnswersButNothingEndsOnADeviceThatHangs) {
  Start();
  const TestFeed made = Add();
  ASSERT_TRUE(AwaitProgress(*producer_, [](const ProducerProgress& progress) {
    return progress.has_running_launch;
  }));
  for (int i = 0; i < 3; ++i) {
    producer_->Ping();
    ASSERT_TRUE(AwaitProgress(*producer_, HasAnswered));
    EXPECT_TRUE(producer_->progress().has_running_launch);
    EXPECT_EQ(producer_->progress().num_launches_ended, 0);
  }
  CompleteUntil(made, 3);
  EXPECT_TRUE(AwaitProgress(*producer_, [](const ProducerProgress& progress) {
    return progress.num_launches_ended == 3 && !progress.has_running_launch;
  }));
  Remove(made);
}

TEST_P(ProducerTest, AThreadThatIsStuckAnswersNoPing) {
  Signal entered;
  Signal leave;
  Start({}, [&](uint64_t, absl::Status) {
    entered.Notify();
    leave.Await();
  });
  backend_->FailLaunch(1);
  const TestFeed made = Add();
  ASSERT_TRUE(entered.Await());
  producer_->Ping();
  EXPECT_FALSE(HasAnswered(producer_->progress()));
  leave.Notify();
  EXPECT_TRUE(AwaitProgress(*producer_, HasAnswered));
  Remove(made);
}

TEST_P(ProducerTest, TheHandOverOfEveryBatchIsMeasured) {
  Start();
  const TestFeed made = Add();
  for (size_t released = 0; released < 20; ++released) {
    CompleteUntil(made, released + 1);
    made.channel->Release(made.channel->published()[released]);
  }
  backend_->CompleteAll();
  Remove(made);
  const LatencyHistogram::Snapshot snapshot =
      made.feed->stats().hand_over.Read();
  EXPECT_EQ(std::accumulate(snapshot.counts.begin(), snapshot.counts.end(),
                            uint64_t{0}),
            made.channel->published().size());
  EXPECT_GT(snapshot.sum_nanoseconds, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, ProducerTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Polled" : "Calling";
                         });

TEST(ProducerOnHostTest, ServesManyFeedsOnThreads) {
  const auto backend = CreateHostBackend({.num_threads = 2});
  auto producer = Producer::Start(backend.get(), NoFailure);
  ASSERT_THAT(producer, IsOk());
  std::vector<TestFeed> feeds;
  for (uint64_t id = 1; id <= 8; ++id) {
    feeds.push_back(MakeTestFeed(
        backend.get(), {.id = id, .on_done = (*producer)->on_done()}));
    (*producer)->Add(feeds.back().feed.get());
  }
  for (size_t round = 0; round < 100; ++round) {
    for (const TestFeed& made : feeds) {
      ASSERT_TRUE(made.channel->AwaitPublished(round + 1));
      const auto published = made.channel->published()[round];
      ASSERT_EQ(published.batch.sequence, round + 1);
      ASSERT_EQ(BatchBytes(*made.feed, published)[0], round % 3 * 4);
      made.channel->Release(published);
    }
  }
  for (const TestFeed& made : feeds) {
    Signal removed;
    (*producer)->Remove(made.feed.get(), [&] { removed.Notify(); });
    ASSERT_TRUE(removed.Await());
  }
}

}  // namespace
}  // namespace datasetd
