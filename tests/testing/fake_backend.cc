#include "tests/testing/fake_backend.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/host/host_backend.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "tests/testing/fake_device.h"

namespace datasetd {
namespace {

// Counts memory of the host backend. Interface is DeviceMemory or HostMemory.
template <typename Interface>
class FakeMemory final : public Interface {
 public:
  FakeMemory(std::shared_ptr<FakeDevice> device,
             std::unique_ptr<Interface> memory)
      : device_(std::move(device)), memory_(std::move(memory)) {}
  ~FakeMemory() override {
    device_->EndMemory(memory_->data(), memory_->size_bytes());
  }

  uint8_t* data() const override { return memory_->data(); }
  size_t size_bytes() const override { return memory_->size_bytes(); }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const std::unique_ptr<Interface> memory_;
};

class FakeExportedMemory final : public ExportedMemory {
 public:
  FakeExportedMemory(std::shared_ptr<FakeDevice> device,
                     std::unique_ptr<ExportedMemory> memory)
      : device_(std::move(device)), memory_(std::move(memory)) {}
  ~FakeExportedMemory() override {
    device_->EndMemory(memory_->data(), memory_->size_bytes());
  }

  uint8_t* data() const override { return memory_->data(); }
  size_t size_bytes() const override { return memory_->size_bytes(); }
  ExportKind export_kind() const override { return memory_->export_kind(); }
  void Revoke() override { memory_->Revoke(); }
  absl::Span<const uint8_t> ipc_handle() const override {
    return memory_->ipc_handle();
  }
  int file_descriptor() const override { return memory_->file_descriptor(); }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const std::unique_ptr<ExportedMemory> memory_;
};

class FakeProgram final : public LoadedProgram {
 public:
  FakeProgram(std::shared_ptr<FakeDevice> device, const AugmentProgram& program)
      : device_(std::move(device)), program_(program) {
    ClearTeamFlags(program_);
  }
  ~FakeProgram() override { device_->EndProgram(&program_); }

  const AugmentProgram& program() const { return program_; }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const AugmentProgram program_;
};

class FakeEvent final : public Event {
 public:
  explicit FakeEvent(std::shared_ptr<FakeDevice> device)
      : device_(std::move(device)),
        state_(std::make_shared<FakeEventState>()) {}
  ~FakeEvent() override { device_->EndEvent(); }

  absl::StatusOr<bool> IsDone() override { return device_->IsDone(*state_); }

  const std::shared_ptr<FakeEventState>& state() const { return state_; }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const std::shared_ptr<FakeEventState> state_;
};

class FakeStream final : public Stream {
 public:
  FakeStream(std::shared_ptr<FakeDevice> device, int max_batches_per_launch,
             std::function<void()> on_done)
      : device_(std::move(device)),
        max_batches_per_launch_(max_batches_per_launch),
        state_{.on_done = std::move(on_done)} {
    device_->AddStream(&state_);
  }
  ~FakeStream() override { device_->EndStream(&state_); }

  absl::Status CopyToDevice(uint8_t* to, const uint8_t* from,
                            size_t size_bytes) override {
    return device_->Submit(
        &state_, {.copy_to = to, .copy_from = from, .copy_bytes = size_bytes});
  }

  absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                          size_t size_bytes) override {
    return CopyToDevice(to, from, size_bytes);
  }

  absl::Status Augment(const LoadedProgram& program,
                       absl::Span<const BatchTask> batches) override {
    if (batches.empty() ||
        batches.size() > static_cast<size_t>(max_batches_per_launch_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a launch of ", batches.size(), " batches; 1 to ",
                       max_batches_per_launch_, " are allowed"));
    }
    return device_->Submit(
        &state_,
        {.program = &static_cast<const FakeProgram&>(program).program(),
         .batches = {batches.begin(), batches.end()}});
  }

  absl::Status Record(Event& event) override {
    return device_->Submit(&state_,
                           {.event = static_cast<FakeEvent&>(event).state()});
  }

  absl::Status Synchronize() override { return device_->Synchronize(&state_); }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const int max_batches_per_launch_;
  FakeStreamState state_;
};

DeviceInfo MakeInfo(const Backend& host, const FakeBackendOptions& options) {
  DeviceInfo info = host.info();
  info.is_host = options.is_host;
  info.name = options.name;
  info.uuid = options.uuid;
  info.description = "host memory, work on command";
  if (!options.is_host) info.total_bytes = options.total_bytes;
  return info;
}

template <typename Fake, typename Interface, typename Allocate>
absl::StatusOr<std::unique_ptr<Interface>> AllocateCounted(
    const std::shared_ptr<FakeDevice>& device, const char* what,
    size_t size_bytes, Allocate allocate) {
  DATASETD_RETURN_IF_ERROR(device->StartObject(what, size_bytes));
  absl::StatusOr<std::unique_ptr<Interface>> memory = allocate();
  if (!memory.ok()) {
    device->AbandonObject();
    return memory.status();
  }
  device->AddBytes((*memory)->size_bytes());
  return std::make_unique<Fake>(device, *std::move(memory));
}

}  // namespace

FakeBackend::FakeBackend(const FakeBackendOptions& options)
    : options_(options),
      host_(CreateHostBackend({.num_threads = 1})),
      info_(MakeInfo(*host_, options)),
      device_(std::make_shared<FakeDevice>()) {}

FakeBackend::~FakeBackend() {
  if (const int alive = device_->num_live_objects(); alive != 0) {
    std::fprintf(
        stderr,
        "FakeBackend: breach of cuda/backend/backend.h: %d objects outlive "
        "their backend\n",
        alive);
    std::abort();
  }
}

bool FakeBackend::CompleteNext() { return device_->CompleteNext(); }

int FakeBackend::CompleteAll() {
  int num_completed = 0;
  while (CompleteNext()) ++num_completed;
  return num_completed;
}

bool FakeBackend::FailNext(const absl::Status& error) {
  return device_->FailNext(error);
}

void FakeBackend::FailAllocation(int k) { device_->FailAllocation(k); }
void FakeBackend::FailLaunch(int k) { device_->FailLaunch(k); }

int FakeBackend::num_pending_launches() const {
  return device_->num_pending_launches();
}
int FakeBackend::num_launches() const { return device_->num_launches(); }
int FakeBackend::num_copies() const { return device_->num_copies(); }
int FakeBackend::num_waits() const { return device_->num_waits(); }
int FakeBackend::num_live_objects() const {
  return device_->num_live_objects();
}
size_t FakeBackend::live_bytes() const { return device_->live_bytes(); }

const DeviceInfo& FakeBackend::info() const { return info_; }

absl::StatusOr<std::unique_ptr<DeviceMemory>> FakeBackend::Allocate(
    size_t size_bytes) {
  return AllocateCounted<FakeMemory<DeviceMemory>, DeviceMemory>(
      device_, "device memory", size_bytes,
      [&] { return host_->Allocate(size_bytes); });
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> FakeBackend::AllocateExported(
    size_t size_bytes, ExportKind kind) {
  return AllocateCounted<FakeExportedMemory, ExportedMemory>(
      device_, "exported memory", size_bytes,
      [&] { return host_->AllocateExported(size_bytes, kind); });
}

absl::StatusOr<std::unique_ptr<HostMemory>> FakeBackend::AllocateHost(
    size_t size_bytes) {
  return AllocateCounted<FakeMemory<HostMemory>, HostMemory>(
      device_, "host memory", size_bytes,
      [&] { return host_->AllocateHost(size_bytes); });
}

std::vector<ExportKind> FakeBackend::export_kinds() const {
  return host_->export_kinds();
}

absl::StatusOr<std::unique_ptr<LoadedProgram>> FakeBackend::Load(
    const AugmentProgram& program) {
  DATASETD_RETURN_IF_ERROR(device_->StartObject("a program", 0));
  return std::make_unique<FakeProgram>(device_, program);
}

absl::StatusOr<std::unique_ptr<Stream>> FakeBackend::CreateStream(
    std::function<void()> on_done, const StreamOptions& /*options*/) {
  DATASETD_RETURN_IF_ERROR(device_->StartObject("a stream", 0));
  if (options_.needs_polling) on_done = nullptr;
  return std::make_unique<FakeStream>(device_, options_.max_batches_per_launch,
                                      std::move(on_done));
}

absl::StatusOr<std::unique_ptr<Event>> FakeBackend::CreateEvent() {
  DATASETD_RETURN_IF_ERROR(device_->StartObject("an event", 0));
  return std::make_unique<FakeEvent>(device_);
}

bool FakeBackend::needs_polling() const { return options_.needs_polling; }
int FakeBackend::max_batches_per_launch(int64_t /*batch_bytes*/) const {
  return options_.max_batches_per_launch;
}
int FakeBackend::max_teams(int64_t /*team_bytes*/) const {
  return options_.max_teams;
}
int FakeBackend::max_launches_in_flight() const {
  return options_.max_launches_in_flight;
}
int64_t FakeBackend::max_launch_operations() const {
  return options_.max_launch_operations;
}
bool FakeBackend::takes_turns() const { return options_.takes_turns; }

}  // namespace datasetd
