// The thread that keeps the feeds of one device full.
//
// Each round it reads what clients said, publishes what has completed, and
// launches new work. Users take turns by the device's time that their launches
// took, and so do the feeds of a user; where the backend takes turns itself,
// each feed may have a launch in flight, and a user's feeds together as many as
// are worth it. When nothing is left to do it tells
// every client that it is idle, looks once more, and sleeps on an epoll
// descriptor: the clients' eventfds, the backend's completions, and commands.
// It never waits for a client; while its own work or a client's device runs
// and nobody will call, it polls, from 20 us doubling to 500 us.
//
// A client that wakes the thread for nothing more often than 100 times in 10 ms
// is not listened to for the rest of these; its releases are still seen
// whenever the thread looks.
//
// A watchdog asks with Ping whether the thread still turns and reads the answer
// in progress(): a thread that sleeps for lack of work answers, one that is
// stuck in the driver does not, and one whose device hangs has launches running
// of which none ends, nor a piece.
//
// Thread-safe. Feeds given to Add belong to the caller and must stay alive
// until Remove's callback.

#ifndef DATASETD_SERVER_FEED_PRODUCER_H_
#define DATASETD_SERVER_FEED_PRODUCER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "cuda/device/backend.h"
#include "server/feed/feed.h"
#include "server/feed/latency_histogram.h"

namespace datasetd {

struct ProducerProgress {
  uint64_t num_pings = 0;
  uint64_t num_pings_answered = 0;
  uint64_t num_launches_ended = 0;
  uint64_t num_pieces = 0;  // as Backend::num_pieces
  bool has_running_launch = false;
};

class Producer {
 public:
  // Nanoseconds of a monotonic clock, by which users take turns.
  using ClockFunction = uint64_t (*)();

  // `on_failure` is called from the producer's thread. With a device failure
  // (cuda/device/device_failure.h), once: from then on nothing is published.
  // With any other error, which names the feed: its launch was refused, and it
  // is stopped.
  static absl::StatusOr<std::unique_ptr<Producer>> Start(
      Backend* backend, std::function<void(absl::Status)> on_failure,
      ClockFunction clock = MonotonicNanoseconds);

  // Ends the thread. REQUIRES: every feed was removed, and destroyed if it got
  // on_done().
  ~Producer();

  // Whether the calling thread is a producer's, whose `on_failure` says more of
  // a device failure than the error alone.
  static bool IsThisThread();

  // What Feed::Create takes as on_done; callable from any thread while the
  // producer lives.
  std::function<void()> on_done();

  void Add(Feed* feed);

  // Stops the feed; `on_removed` is called from the producer's thread when its
  // last launch has ended and the producer has forgotten it.
  void Remove(Feed* feed, std::function<void()> on_removed);

  // The thread looks at every feed once more before it sleeps.
  void Wake();
  // Wakes the thread; its next round answers. What runs on the device says that
  // it gets on, if the backend can.
  void Ping();
  ProducerProgress progress() const;

  // For Feed::Options.
  LatencyHistogram* hand_over() { return &hand_over_; }

  // Rounds so far; moves while there is work.
  uint64_t num_rounds() const {
    return num_rounds_.load(std::memory_order_relaxed);
  }
  uint64_t num_throttled_wakes() const {
    return num_throttled_.load(std::memory_order_relaxed);
  }

 private:
  // Those who have feeds here.
  struct User {
    int num_feeds = 0;
    int num_launches = 0;  // in flight
    uint64_t used_nanoseconds = 0;
  };
  struct Member {
    Feed* feed = nullptr;
    User* user = nullptr;
    int num_launches = 0;  // in flight
    int num_ended = 0;     // of them, in this round
    uint64_t used_nanoseconds = 0;
    bool is_waiting = false;  // for its turn
    bool is_refused = false;  // had nothing to launch after all, this round
    std::function<void()> on_removed;  // set when it is to go
    uint64_t window_start_nanoseconds = 0;
    int num_spurious_wakes = 0;
    bool is_muted = false;
  };
  struct Command {
    Feed* feed = nullptr;
    bool is_removal = false;
    std::function<void()> on_removed;
  };

  Producer(Backend* backend, std::function<void(absl::Status)> on_failure,
           ClockFunction clock, FileDescriptor epoll, FileDescriptor wake);
  void Run();
  void TakeCommands();
  bool ScanAll();
  // True if something was published or removed.
  absl::StatusOr<bool> CollectAll();
  absl::StatusOr<bool> LaunchAll();
  // Shares out the time since the last end to those whose launches have ended.
  void ChargeEnded(int num_ended);
  // Whether a launch of the member finds a place.
  bool HasPlace(const Member& member) const;
  // Members that want a launch count as waiting; who comes new has used as much
  // as those that wait, at least.
  void UpdateWaiting();
  // The member whose turn it is, or null.
  Member* NextMember();
  bool ForgetRemoved();
  void SetIdleAll(bool idle);
  // Sleeps until woken, or for the time given (negative: for ever).
  void Wait(int64_t timeout_nanoseconds);
  void CountSpuriousWake(Member& member);
  void Unmute();
  void Listen(Member& member, bool listen);
  void Fail(const absl::Status& status);

  Backend* const backend_;
  const std::function<void(absl::Status)> on_failure_;
  const ClockFunction clock_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;

  Mutex mutex_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the thread.
  std::map<uint32_t, User> users_;
  std::vector<std::unique_ptr<Member>> members_;
  size_t next_member_ = 0;
  int num_running_launches_ = 0;
  // Since when the device works for those whose launches end next.
  uint64_t busy_since_nanoseconds_ = 0;
  bool has_failed_ = false;
  std::vector<Member*> woken_;
  int num_muted_ = 0;

  // The wake descriptor was written to since the thread last waited.
  std::atomic<bool> is_woken_ = false;
  std::atomic<uint64_t> num_rounds_ = 0;
  std::atomic<uint64_t> num_throttled_ = 0;
  std::atomic<uint64_t> num_pings_ = 0;
  std::atomic<uint64_t> num_pings_answered_ = 0;
  std::atomic<uint64_t> num_launches_ended_ = 0;
  std::atomic<bool> has_running_launch_ = false;
  LatencyHistogram hand_over_;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_PRODUCER_H_
