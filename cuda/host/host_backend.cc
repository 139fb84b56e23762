#include "cuda/host/host_backend.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/backend/host_memory.h"
#include "cuda/host/host_stream.h"
#include "cuda/host/host_thread_pool.h"
#include "cuda/kernels/program/augment.h"

namespace datasetd {
namespace {

int NumThreads(int asked) {
  if (asked > 0) return asked;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceInfo MakeInfo(int num_threads) {
  return {
      .name = "cpu",
      .description = absl::StrCat("host memory, ", num_threads,
                                  num_threads == 1 ? " thread" : " threads"),
      .is_host = true,
      .total_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<size_t>(sysconf(_SC_PAGE_SIZE)),
      .free_bytes = AvailableHostBytes().value_or(0)};
}

// What several batches of one launch take together, at most.
constexpr int64_t kLaunchBytes = 4 << 20;

class HostBackend final : public Backend {
 public:
  explicit HostBackend(int num_threads)
      : info_(MakeInfo(num_threads)), pool_(num_threads) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override {
    return AllocateHostDeviceMemory(size_bytes);
  }

  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    if (kind != ExportKind::kMemfd) {
      return absl::UnimplementedError(
          absl::StrCat("device cpu exports no ", ExportKindName(kind),
                       ", only ", ExportKindName(ExportKind::kMemfd)));
    }
    return AllocateMemfd(size_bytes);
  }

  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(
      size_t size_bytes) override {
    return AllocatePlainHostMemory(size_bytes);
  }

  std::vector<ExportKind> export_kinds() const override {
    return {ExportKind::kMemfd};
  }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const AugmentProgram& program) override {
    return std::make_unique<HostProgram>(program);
  }

  using Backend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    return std::make_unique<HostStream>(
        &pool_, &AugmentHostFrom, std::move(on_done),
        HostUser{.uid = options.uid, .is_background = options.is_background});
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<HostEvent>();
  }

  bool needs_polling() const override { return false; }
  int max_batches_per_launch(int64_t batch_bytes) const override {
    return static_cast<int>(
        std::clamp<int64_t>(kLaunchBytes / batch_bytes, 1, kMaxHostBatches));
  }
  int max_teams(int64_t /*team_bytes*/) const override {
    return pool_.num_threads();
  }
  // Two per thread: one runs, the next waits.
  int max_launches_in_flight() const override {
    return 2 * pool_.num_threads();
  }
  bool takes_turns() const override { return true; }
  uint64_t num_pieces() const override { return pool_.num_pieces(); }
  void RequestProgress() override { pool_.RequestProgress(); }

 private:
  const DeviceInfo info_;
  HostThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> CreateHostBackend(const HostBackendOptions& options) {
  return std::make_unique<HostBackend>(NumThreads(options.num_threads));
}

}  // namespace datasetd
