// The devices that the daemon serves from, each with its backend and memory
// budget. Fixed after construction; thread-safe.

#ifndef DATASETD_SERVER_DATASET_DEVICE_TABLE_H_
#define DATASETD_SERVER_DATASET_DEVICE_TABLE_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "cuda/backend/backend.h"
#include "server/dataset/memory_budget.h"

namespace datasetd {

// Whether a device serves: until it fails, for good. Thread-safe.
class DeviceHealth {
 public:
  // Returns false if it has failed before.
  bool Fail(absl::string_view reason);
  bool has_failed() const { return has_failed_.load(); }
  // Why it failed; empty if it serves.
  std::string error() const;

 private:
  std::atomic<bool> has_failed_ = false;
  mutable Mutex mutex_;
  std::string error_ ABSL_GUARDED_BY(mutex_);
};

struct ServedDevice {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<MemoryBudget> budget;
  std::unique_ptr<DeviceHealth> health = std::make_unique<DeviceHealth>();
  const std::string& name() const { return backend->info().name; }
  // 16 bytes; empty on the host.
  std::string uuid() const;
  // "GPU-..." or "MIG-..."; empty on the host.
  std::string uuid_text() const;
  // "cuda:0 (GPU-...)", "cpu".
  std::string Description() const;
};

class DeviceTable {
 public:
  // `pinned` limits the host memory that is pinned for samples; null: there is
  // none. REQUIRES: not empty.
  explicit DeviceTable(std::vector<ServedDevice> devices,
                       std::unique_ptr<MemoryBudget> pinned = nullptr)
      : devices_(std::move(devices)), pinned_(std::move(pinned)) {}

  // `name` is a device's, or its UUID or the beginning of that; empty: the
  // first device. INVALID_ARGUMENT names the served devices, or those of which
  // the text is the beginning.
  absl::StatusOr<ServedDevice*> Find(absl::string_view name);
  ServedDevice& first() { return devices_.front(); }
  // Every GPU that serves, or if none does, that failed; every device if there
  // is no GPU.
  std::vector<ServedDevice*> Gpus();
  // False once all have failed.
  bool IsServing() const;
  // FAILED_PRECONDITION if the device has failed: says why, and what else there
  // is.
  absl::Status CheckServes(const ServedDevice& device) const;
  const std::vector<ServedDevice>& devices() const { return devices_; }
  MemoryBudget* pinned() const { return pinned_.get(); }

 private:
  std::vector<ServedDevice> devices_;
  const std::unique_ptr<MemoryBudget> pinned_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DEVICE_TABLE_H_
