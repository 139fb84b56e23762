// RingModel is one feed as a program for the Explorer: the product's two ring
// ends over ModelAtomic, a producer, a device that completes or fails at any
// later point, a client, and, as asked for, its GPU, a second thread that
// releases, and somebody who closes the feed.
//
// RingModel checks on every schedule:
//   - the client gets its batches or is told that the feed is closed: no
//     wake-up is lost, on either side;
//   - a slot is filled only when neither the client nor a device may use it,
//     and is published only when its own work has completed without error;
//   - sequences come without gap and in order, and the descriptor names what is
//     in the slot, as long as the client has it;
//   - a seek is read whole; after it the client uses batches of the new
//     generation only, from exactly the position asked for, each once.
//
// A Mutation plants one mistake; each must be found.

#ifndef DATASETD_TESTS_RING_RING_MODEL_H_
#define DATASETD_TESTS_RING_RING_MODEL_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"
#include "tests/ring/explorer.h"
#include "tests/ring/model_atomic.h"
#include "tests/ring/model_wait.h"

namespace datasetd::testing {

enum class Mutation {
  kNone,
  // Producer.
  kIdleAfterRescan,       // looks first, then says that it sleeps
  kNoRescan,              // says that it sleeps, and sleeps
  kSleepsWhileRequested,  // does not poll for a release to be done
  kSleepsWhileWorking,    // does not poll for its own work
  kFreesOnRequest,        // takes requested for done
  kFreesOnAnyDone,        // takes any value in release_done for its own
  kPublishesAtStart,      // before the work has completed
  kPublishesFailed,       // takes the end of failed work for success
  kPublishesOutOfOrder,   // the newest work first
  kSequenceAtStart,       // so that dropped work leaves a gap
  kNewGenerationForOldWork,
  kIgnoresSeek,
  kIgnoresWaiting,  // gathers slots although the client waits
  kDescriptorAfterPublish,
  kWaitingReadFirst,  // before the batch is published
  kNoWakeIncrement,   // publishes without changing the futex word
  kCloseWithoutWake,
  kCloseBeforeState,  // wakes, then stores the state
  kTornSeekRead,      // trusts the generation alone
  // Client.
  kNoEventOnRelease,
  kNoEventOnSeek,
  kNoEventOnWait,
  kIdleReadFirst,  // before the release is stored
  kIdleReadBeforeWaiting,
  kNoWaitingFlag,  // sleeps without having said so
  kWordAfterPoll,
  kNoClosedCheck,  // waits without looking whether the feed is closed
  kReleasesInUse,  // says done while the GPU still reads
  kUsesStale,
  kPlainRequest,  // stores over a later request
};

struct RingModelOptions {
  uint32_t num_slots = 2;
  // The client ends after so many batches.
  uint32_t num_batches = 4;
  // Before a seek there are no more than these, as if the rest were empty.
  uint32_t num_before_seek = 1000;
  // The client may seek before any Next, and again at once.
  uint32_t num_seeks = 0;
  // It makes all its seeks before the first Next.
  bool seeks_first = false;
  // The number of batches that are held while the next one is taken.
  uint32_t num_held = 0;
  // The youngest held batch is released first: the first is kept to the end.
  bool releases_youngest = false;
  // A GPU writes release_done, at any later point.
  bool has_gpu = false;
  // Every second batch is released by another thread.
  bool has_releaser = false;
  bool may_fail = false;
  bool may_close = false;
  // The producer starts work when all slots are free or the client waits.
  bool gathers = false;
  // A seek makes the producer drop what is not published yet.
  bool drops_stale_work = false;
  Mutation mutation = Mutation::kNone;
};

class RingModel : public Model {
 public:
  explicit RingModel(const RingModelOptions& options);
  void CheckEnd() override;

  static constexpr uint64_t kBatchesPerEpoch = 2;
  // Where the seek of a generation goes; 0 is where the feed begins.
  static ring::SeekRequest SeekOf(uint64_t generation);

 private:
  static constexpr uint32_t kSlots = 4;
  static constexpr uint32_t kQueue = 4;

  // The one that may touch a slot's bytes.
  enum class User : uint64_t { kNobody, kDevice, kProducer, kClient, kFailed };

  struct Position {
    uint64_t epoch;
    uint64_t batch;
    bool operator==(const Position&) const = default;
  };
  static void Advance(Position* position);

  // The actual state of a slot, whether or not a thread knows it.
  struct SlotTruth {
    User user;
    Position content;
  };

  enum class SlotState : uint64_t { kFree, kWorking, kPublished };
  struct Work {
    uint64_t slot;
    uint64_t sequence;
    uint64_t generation;
    Position position;
  };
  struct Producer {
    Position position;
    uint64_t generation;
    uint64_t next_sequence;
    uint64_t num_working;
    uint64_t is_release_pending;  // requested, not done, at the last scan
    uint64_t has_failed;
    SlotState state[kSlots];
    uint64_t sequence[kSlots];  // published in the slot
    Work working[kSlots];       // in order of start
  };

  struct Held {
    uint64_t slot;
    uint64_t sequence;
  };
  struct Client {
    Position position;
    uint64_t generation;
    uint64_t next_sequence;
    uint64_t num_used;
    uint64_t num_held;
    uint64_t is_closed;
    Held held[kSlots + 1];
  };

  // Orders to another model thread, taken in order.
  template <typename T>
  struct Queue {
    uint64_t num_taken = 0;
    T entries[kQueue] = {};
    ModelAtomic<uint64_t> num_put;

    void Put(const T& entry) {
      entries[num_put.Peek() % kQueue] = entry;
      num_put.Poke(num_put.Peek() + 1);
    }
    // Blocks while there is none.
    T Take() {
      num_put.AwaitChange(num_taken);
      return std::exchange(entries[num_taken++ % kQueue], T{});
    }
  };

  bool Has(Mutation mutation) const { return options_.mutation == mutation; }
  void Check(bool condition, std::string_view violation) const {
    Explorer::Current()->Check(condition, violation);
  }
  void NameWords();
  template <typename T>
  void AddQueue(const Queue<T>& queue);

  // The producer's thread.
  void Produce();
  // Looks at everything once. Returns true if there was something to do.
  bool Scan();
  bool ScanReleases();
  bool IsGathering() const;
  bool StartWork();
  bool PublishCompleted();
  void PublishWork(const Work& work);
  bool MustPoll() const;
  void Close();
  std::optional<ring::SeekRequest> ReadSeek();

  // The device's thread.
  void RunDevice();

  // The client's threads.
  void Consume();
  void Seek();
  // False if the feed is closed.
  bool Next(Held* batch);
  bool IsClosed() const;
  // Waits once. The slot, if the batch came before the wait.
  std::optional<uint32_t> Wait();
  // The batch of next_sequence is in `slot`. False if it is stale.
  bool Accept(uint32_t slot);
  void CheckHeld(const Held& batch) const;
  void Release(const Held& batch);
  void CompleteByCpu(const Held& batch);
  void RequestRelease(const Held& batch);

  const RingModelOptions options_;
  ring::BasicDaemonPage<ModelAtomic> daemon_page_ = {};
  ring::BasicClientPage<ModelAtomic> client_page_ = {};
  ring::BasicDaemonRing<ModelAtomic> daemon_ring_;
  ring::BasicClientRing<ModelAtomic> client_ring_;
  ModelEvent event_;

  SlotTruth truth_[kSlots] = {};
  Producer producer_ = {};
  Client client_ = {};
  ModelAtomic<uint32_t> close_asked_;

  // By slot: what the device says of the work on it.
  enum WorkStatus : uint32_t { kRunning = 1, kCompleted = 2, kFailed = 3 };
  ModelAtomic<uint32_t> work_status_[kSlots];
  Queue<Work> device_queue_;
  Queue<Held> gpu_queue_;
  Queue<Held> releaser_queue_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_RING_RING_MODEL_H_
