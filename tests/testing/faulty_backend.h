// A backend whose calls fail as a FaultPlan says, and that counts what it gave
// out: live_objects() is 0 when nothing leaked.

#ifndef DATASETD_TESTS_TESTING_FAULTY_BACKEND_H_
#define DATASETD_TESTS_TESTING_FAULTY_BACKEND_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "tests/testing/fault_plan.h"

namespace datasetd::testing {

// Counts the objects that live.
class LiveCount {
 public:
  explicit LiveCount(std::atomic<int>* count) : count_(count) { ++*count_; }
  ~LiveCount() { --*count_; }
  LiveCount(const LiveCount&) = delete;
  LiveCount& operator=(const LiveCount&) = delete;
  // A count that nobody looks at.
  static std::atomic<int>* Ignored() {
    static std::atomic<int> count = 0;
    return &count;
  }

 private:
  std::atomic<int>* const count_;
};

template <typename Memory>
class CountedMemory : public Memory {
 public:
  CountedMemory(std::unique_ptr<Memory> memory, std::atomic<int>* count)
      : memory_(std::move(memory)), live_(count) {}
  uint8_t* data() const override { return memory_->data(); }
  size_t size_bytes() const override { return memory_->size_bytes(); }

 protected:
  const std::unique_ptr<Memory> memory_;

 private:
  const LiveCount live_;
};

class CountedExport : public CountedMemory<ExportedMemory> {
 public:
  using CountedMemory::CountedMemory;
  ExportKind export_kind() const override { return memory_->export_kind(); }
  void Revoke() override { memory_->Revoke(); }
  absl::Span<const uint8_t> ipc_handle() const override {
    return memory_->ipc_handle();
  }
  int file_descriptor() const override { return memory_->file_descriptor(); }
};

class FaultyEvent : public Event {
 public:
  FaultyEvent(std::unique_ptr<Event> event, std::atomic<int>* count)
      : event_(std::move(event)), live_(count) {}
  // Never fails: how often it is asked is a matter of time.
  absl::StatusOr<bool> IsDone() override { return event_->IsDone(); }
  Event& real() { return *event_; }

 private:
  const std::unique_ptr<Event> event_;
  const LiveCount live_;
};

class FaultyStream : public Stream {
 public:
  explicit FaultyStream(std::unique_ptr<Stream> stream,
                        FaultPlan* plan = FaultPlan::None(),
                        std::atomic<int>* count = LiveCount::Ignored())
      : stream_(std::move(stream)), plan_(plan), live_(count) {}

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from,
                            size_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultDevice, "CopyToDevice"));
    return stream_->CopyToDevice(to, from, size_bytes);
  }
  absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                          size_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultDevice, "CopyToHost"));
    return stream_->CopyToHost(to, from, size_bytes);
  }
  absl::Status Augment(const LoadedProgram& program,
                       absl::Span<const BatchTask> batches) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultDevice, "Augment"));
    return stream_->Augment(program, batches);
  }
  absl::Status Record(Event& event) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultDevice, "Record"));
    return stream_->Record(static_cast<FaultyEvent&>(event).real());
  }
  absl::Status Synchronize() override {
    // The work is done all the same.
    const absl::Status status = stream_->Synchronize();
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultDevice, "Synchronize"));
    return status;
  }
  void Cancel() override { stream_->Cancel(); }

 private:
  const std::unique_ptr<Stream> stream_;
  FaultPlan* const plan_;
  const LiveCount live_;
};

class FaultyBackend : public Backend {
 public:
  // `plan` and `live_objects` outlive it.
  explicit FaultyBackend(std::unique_ptr<Backend> backend,
                         FaultPlan* plan = FaultPlan::None(),
                         std::atomic<int>* live_objects = LiveCount::Ignored())
      : backend_(std::move(backend)), plan_(plan), live_(live_objects) {}

  const DeviceInfo& info() const override { return backend_->info(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "Allocate"));
    DATASETD_ASSIGN_OR_RETURN(auto memory, backend_->Allocate(size_bytes));
    return std::make_unique<CountedMemory<DeviceMemory>>(std::move(memory),
                                                         live_);
  }
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "AllocateExported"));
    DATASETD_ASSIGN_OR_RETURN(auto memory,
                              backend_->AllocateExported(size_bytes, kind));
    return std::make_unique<CountedExport>(std::move(memory), live_);
  }
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "AllocateHost"));
    DATASETD_ASSIGN_OR_RETURN(auto memory, backend_->AllocateHost(size_bytes));
    return std::make_unique<CountedMemory<HostMemory>>(std::move(memory),
                                                       live_);
  }
  std::vector<ExportKind> export_kinds() const override {
    return backend_->export_kinds();
  }
  // The program itself: a stream looks into it.
  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "Load"));
    return backend_->Load(program);
  }
  using Backend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "CreateStream"));
    DATASETD_ASSIGN_OR_RETURN(
        auto stream, backend_->CreateStream(std::move(on_done), options));
    return std::make_unique<FaultyStream>(std::move(stream), plan_, live_);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    DATASETD_RETURN_IF_ERROR(plan_->Pass(kFaultAllocate, "CreateEvent"));
    DATASETD_ASSIGN_OR_RETURN(auto event, backend_->CreateEvent());
    return std::make_unique<FaultyEvent>(std::move(event), live_);
  }
  bool needs_polling() const override { return backend_->needs_polling(); }
  int max_batches_per_launch(int64_t batch_bytes) const override {
    return backend_->max_batches_per_launch(batch_bytes);
  }
  int max_teams(int64_t team_bytes) const override {
    return backend_->max_teams(team_bytes);
  }
  int max_launches_in_flight() const override {
    return backend_->max_launches_in_flight();
  }
  bool takes_turns() const override { return backend_->takes_turns(); }
  int64_t max_launch_operations() const override {
    return backend_->max_launch_operations();
  }

 protected:
  Backend& backend() { return *backend_; }

 private:
  const std::unique_ptr<Backend> backend_;
  FaultPlan* const plan_;
  std::atomic<int>* const live_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FAULTY_BACKEND_H_
