// The state that the objects of a FakeBackend share: the pending work, the
// faults to come, and the number of live objects. See fake_backend.h for the
// semantics. Thread-safe.

#ifndef DATASETD_TESTS_TESTING_FAKE_DEVICE_H_
#define DATASETD_TESTS_TESTING_FAKE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/program/params.h"
#include "tests/testing/fake_notifier.h"

namespace datasetd {

struct FakeEventState {
  bool is_pending = false;
};

struct FakeWork {
  // Launches only: null for other work, whose batches are empty.
  const AugmentProgram* program = nullptr;
  std::vector<BatchTask> batches;
  // Copies only.
  uint8_t* copy_to = nullptr;
  const uint8_t* copy_from = nullptr;
  size_t copy_bytes = 0;
  // Records of events only.
  std::shared_ptr<FakeEventState> event;
  // Rises with submission, over all streams.
  uint64_t sequence = 0;
};

// Work that waits: empty, or begins with a launch.
struct FakeStreamState {
  std::deque<FakeWork> pending;
  std::function<void()> on_done;
};

class FakeDevice {
 public:
  // The commands of FakeBackend.
  bool CompleteNext();
  bool FailNext(const absl::Status& error);
  void FailAllocation(int k);
  void FailLaunch(int k);

  int num_pending_launches() const;
  int num_launches() const;
  int num_copies() const;
  int num_waits() const;
  int num_live_objects() const;
  size_t live_bytes() const;

  // Counts an object in, or returns the error to give instead; `what` names the
  // object, and `size_bytes` the size asked for, in it.
  absl::Status StartObject(const std::string& what, size_t size_bytes);
  // StartObject succeeded, and the object could not be made after all.
  void AbandonObject() { CountOut(0); }
  // The bytes that the object has, counted out by EndMemory.
  void AddBytes(size_t size_bytes);
  void EndMemory(const uint8_t* data, size_t size_bytes);
  void EndProgram(const AugmentProgram* program);
  void EndEvent() { CountOut(0); }

  void AddStream(FakeStreamState* stream);
  // Runs what is pending there, and waits for the calls of on_done.
  void EndStream(FakeStreamState* stream);

  absl::Status Submit(FakeStreamState* stream, FakeWork work);
  absl::Status Synchronize(FakeStreamState* stream);
  absl::StatusOr<bool> IsDone(const FakeEventState& event) const;

 private:
  void CountOut(size_t size_bytes);

  // These REQUIRE: mutex_ is held.
  FakeStreamState* OldestStream();
  void CheckNewLaunch(const FakeStreamState* stream,
                      const FakeWork& work) const;
  void RunPending(FakeStreamState* stream);
  // Runs the first pending work, and all behind it up to the next launch.
  void RunFirst(FakeStreamState* stream);
  void Run(FakeStreamState* stream, const FakeWork& work);
  void EndRecord(FakeStreamState* stream, FakeEventState* event);

  mutable std::mutex mutex_;
  std::vector<FakeStreamState*> streams_;
  absl::Status failure_;
  int launches_until_failure_ = 0;
  int allocations_until_failure_ = 0;
  uint64_t next_sequence_ = 0;
  int num_launches_ = 0;
  int num_copies_ = 0;
  int num_waits_ = 0;
  int num_live_objects_ = 0;
  size_t live_bytes_ = 0;
  FakeNotifier notifier_;
};

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_FAKE_DEVICE_H_
