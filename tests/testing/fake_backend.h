// A backend for tests: the host backend, whose launches run when the test says
// so, late and in order, and which fails when the test says so.
//
// Work of a stream waits behind the stream's pending launches; with none
// pending, copies and events complete at once. Synchronize, and the destructor
// of a stream, run what is pending there: to the waiting host the device
// finishes. on_done is called from a thread of its own, before the call that
// made the event done returns where that is CompleteNext, CompleteAll or
// FailNext.
//
// Aborts, with a message, on a breach of the contract of backend.h: two pending
// launches that write one slot, with no copy of their stream between; memory or
// a program destroyed, or an event recorded again, while pending work uses it;
// an object that outlives the backend.
//
// Thread-safe as a Backend is; the commands may come from any thread.
// Example:
//
//   FakeBackend backend({});
//   ... the code under test launches ...
//   EXPECT_EQ(backend.num_pending_launches(), 1);
//   backend.CompleteNext();

#ifndef DATASETD_TESTS_TESTING_FAKE_BACKEND_H_
#define DATASETD_TESTS_TESTING_FAKE_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"

namespace datasetd {

class FakeDevice;

struct FakeBackendOptions {
  // As on a GPU: on_done is never called.
  bool needs_polling = false;
  int max_batches_per_launch = 1;
  int max_launches_in_flight = 4;
  int64_t max_launch_operations = 0;
  bool takes_turns = false;
  int max_teams = 1;
  // False: its kernels may not read host memory, as on a GPU.
  bool is_host = true;
  std::string name = "fake";
  std::array<uint8_t, 16> uuid = {};
  size_t total_bytes = size_t{16} << 30;  // of its own, if it is no host
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(const FakeBackendOptions& options);
  // Aborts if an object that it made is alive.
  ~FakeBackend() override;

  // The oldest pending launch of all streams runs, and what waits behind it.
  // False if none is pending.
  bool CompleteNext();
  // Until none is pending; returns how many ran.
  int CompleteAll();
  // The oldest pending launch fails instead, as a kernel with a fault does: it
  // writes nothing, and from now on every call of the backend and of its
  // objects returns `error`, also for events done before. Work that was pending
  // is dropped, and on_done is called for its events. False if none is pending.
  // REQUIRES: `error` is not OK.
  bool FailNext(const absl::Status& error);

  // The k-th call from now that allocates (Allocate, AllocateExported,
  // AllocateHost, Load, CreateStream, CreateEvent) returns RESOURCE_EXHAUSTED.
  // k >= 1; 0 takes the command back.
  void FailAllocation(int k);
  // The k-th Augment from now, over all streams, returns INTERNAL and launches
  // nothing. k >= 1; 0 takes the command back.
  void FailLaunch(int k);

  int num_pending_launches() const;
  // Launches that were submitted so far, failed ones not counted.
  int num_launches() const;
  // Copies that were submitted so far.
  int num_copies() const;
  // Times that a stream was synchronised or destroyed with launches pending.
  int num_waits() const;
  // Objects of any kind made and not destroyed.
  int num_live_objects() const;
  // Bytes of live memory of any kind.
  size_t live_bytes() const;

  const DeviceInfo& info() const override;
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) override;
  std::vector<ExportKind> export_kinds() const override;
  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) override;
  using Backend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override;
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override;
  bool needs_polling() const override;
  int max_batches_per_launch(int64_t batch_bytes) const override;
  int max_teams(int64_t team_bytes) const override;
  int max_launches_in_flight() const override;
  int64_t max_launch_operations() const override;
  bool takes_turns() const override;

 private:
  const FakeBackendOptions options_;
  const std::unique_ptr<Backend> host_;
  const DeviceInfo info_;
  const std::shared_ptr<FakeDevice> device_;
};

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_FAKE_BACKEND_H_
