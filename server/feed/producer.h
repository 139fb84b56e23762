// The thread that keeps the feeds of one device full.
//
// Each round it reads the clients' messages, publishes completed batches and
// launches new work. Users share the device by the time that their launches
// took, and so do the feeds of one user. If the backend schedules users itself,
// each feed may have one launch in flight, and a user's feeds together as many
// as are useful. Users and feeds share this thread, too: the time in which it
// computes a launch's order and starts it is charged to them, and after a
// millisecond of that it publishes what has completed meanwhile. When there is
// nothing to do, the thread tells every client that it is idle, looks once
// more, and sleeps on an epoll descriptor: the clients' eventfds, the backend's
// completions and commands. If a feed gathers free slots, the sleep ends when
// its wait is over (Feed::gathers_until). The thread never waits for a client.
// While work is running that will not signal its end, it polls
// (poll_backoff.h), and expects a feed's next launch to take as long as its
// last.
//
// A client that wakes the thread without reason more than 100 times in 10 ms is
// ignored for the rest of these 10 ms; its releases are still seen in every
// round.
//
// A watchdog calls Ping and reads progress() to see whether the thread still
// runs. A thread that sleeps for lack of work answers; one that is stuck in the
// driver does not; one whose device hangs has launches running, of which none
// ends or completes a piece.
//
// Thread-safe. A feed given to Add belongs to the caller and must stay alive
// until Remove's callback.

#ifndef DATASETD_SERVER_FEED_PRODUCER_H_
#define DATASETD_SERVER_FEED_PRODUCER_H_

#include <sys/epoll.h>

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
#include "cuda/backend/backend.h"
#include "server/feed/feed.h"
#include "server/feed/poll_backoff.h"

namespace datasetd {

struct ProducerProgress {
  uint64_t num_pings = 0;
  uint64_t num_pings_answered = 0;
  uint64_t num_launches_ended = 0;
  uint64_t num_pieces = 0;  // see Backend::num_pieces
  bool has_running_launch = false;
};

class Producer {
 public:
  // Returns the time of a monotonic clock in nanoseconds, used to share the
  // device between users.
  using ClockFunction = uint64_t (*)();

  // The time by which the thread polls, and how it sleeps: as epoll_pwait2, and
  // without a timeout if it is negative.
  struct PollTime {
    std::function<uint64_t()> now;
    std::function<int(int epoll, epoll_event* events, int max_events,
                      int64_t timeout_nanoseconds)>
        wait;
  };
  static PollTime RealPollTime();

  // Called on the producer's thread: with a device failure
  // (cuda/backend/device_failure.h) and feed 0 once, and nothing is published
  // from then on; with any other error when a launch of the feed was refused,
  // which is stopped then.
  using FailureFunction = std::function<void(uint64_t feed_id, absl::Status)>;

  static absl::StatusOr<std::unique_ptr<Producer>> Start(
      Backend* backend, FailureFunction on_failure,
      ClockFunction clock = MonotonicNanoseconds,
      PollTime poll_time = RealPollTime());

  // Ends the thread. REQUIRES: every feed was removed, and destroyed if it was
  // created with on_done().
  ~Producer();

  // Whether the calling thread is a producer's, whose FailureFunction says more
  // of a device failure than the error alone.
  static bool IsThisThread();

  // What Feed::Create takes as on_done; callable from any thread while the
  // producer lives.
  std::function<void()> on_done();

  void Add(Feed* feed);

  // Stops the feed. Calls `on_removed` on the producer's thread once its last
  // launch has ended and the producer no longer refers to the feed.
  void Remove(Feed* feed, std::function<void()> on_removed);

  // Calls `task` on the producer's thread, which drives the feeds: after what
  // was asked for before, and before what is asked for afterwards.
  void Run(std::function<void()> task);

  // Makes the thread look at every feed once more before it sleeps.
  void Wake();
  // Wakes the thread, which answers in its next round. Running device work
  // reports its progress if the backend supports it.
  void Ping();
  ProducerProgress progress() const;

  // Number of rounds; increases while there is work.
  uint64_t num_rounds() const {
    return num_rounds_.load(std::memory_order_relaxed);
  }
  uint64_t num_throttled_wakes() const {
    return num_throttled_.load(std::memory_order_relaxed);
  }

 private:
  // A user with feeds on this device.
  struct User {
    int num_feeds = 0;
    int num_launches = 0;  // in flight
    uint64_t used_nanoseconds = 0;
    // The least time used by a feed of the user at work, now or when one was.
    uint64_t floor_nanoseconds = 0;
    uint64_t least_nanoseconds = 0;  // of UpdateWaiting
  };
  struct Member {
    Feed* feed = nullptr;
    User* user = nullptr;
    int num_launches = 0;  // in flight
    int num_ended = 0;     // launches that ended in this round
    uint64_t used_nanoseconds = 0;
    // Where launches are polled: when the one that ends next was begun, or the
    // one before it was seen to have ended; the last look that saw it run; and
    // for how long the one before was seen to run.
    uint64_t running_since_nanoseconds = 0;
    uint64_t seen_running_nanoseconds = 0;
    uint64_t last_launch_nanoseconds = 0;
    bool is_waiting = false;           // for its turn
    bool is_refused = false;           // had nothing to launch in this round
    std::function<void()> on_removed;  // set when it is being removed
    uint64_t window_start_nanoseconds = 0;
    int num_spurious_wakes = 0;
    bool is_muted = false;
  };
  struct Command {
    Feed* feed = nullptr;  // null: to run
    bool is_removal = false;
    std::function<void()> run;  // on_removed, of a removal
  };

  Producer(Backend* backend, FailureFunction on_failure, ClockFunction clock,
           PollTime poll_time, FileDescriptor epoll, FileDescriptor wake);
  void Loop();
  void TakeCommands();
  bool ScanAll();
  // Returns true if something was published or removed.
  absl::StatusOr<bool> CollectAll();
  absl::StatusOr<bool> LaunchAll();
  // The time, where launches are polled; else 0.
  uint64_t PollNow() const;
  // Sleeps before the next look at running launches.
  void Poll();
  static void Charge(Member& member, uint64_t nanoseconds);
  // Charges the time since the last end to the users whose launches ended.
  void ChargeEnded(int num_ended);
  // True if the member may start another launch.
  bool HasPlace(const Member& member) const;
  // Marks members that want a launch as waiting. A newly waiting member starts
  // with at least the least usage of those at work.
  void UpdateWaiting();
  // The member whose turn it is, or null.
  Member* NextMember();
  bool ForgetRemoved();
  void SetIdleAll(bool idle);
  // The longest sleep of a thread that nothing wakes; negative: no limit.
  int64_t MaxSleepNanoseconds() const;
  // Sleeps until woken or until the timeout; negative: no timeout.
  void Wait(int64_t timeout_nanoseconds);
  void CountSpuriousWake(Member& member);
  void Unmute();
  void Listen(Member& member, bool listen);
  void Fail(const absl::Status& status);

  Backend* const backend_;
  const FailureFunction on_failure_;
  const ClockFunction clock_;
  const PollTime poll_time_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;

  Mutex mutex_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the thread only.
  std::map<uint32_t, User> users_;
  std::vector<std::unique_ptr<Member>> members_;
  size_t next_member_ = 0;
  int num_running_launches_ = 0;
  // As a User's, of the users.
  uint64_t floor_nanoseconds_ = 0;
  // Start of the device time charged to the launches that end next.
  uint64_t busy_since_nanoseconds_ = 0;
  PollBackoff backoff_;
  bool has_failed_ = false;
  std::vector<Member*> woken_;
  int num_muted_ = 0;

  // True if the wake descriptor was written since the thread last waited.
  std::atomic<bool> is_woken_ = false;
  std::atomic<uint64_t> num_rounds_ = 0;
  std::atomic<uint64_t> num_throttled_ = 0;
  std::atomic<uint64_t> num_pings_ = 0;
  std::atomic<uint64_t> num_pings_answered_ = 0;
  std::atomic<uint64_t> num_launches_ended_ = 0;
  std::atomic<bool> has_running_launch_ = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_PRODUCER_H_
