// The devices that the daemon serves from, each with its backend and memory
// budget. Fixed after construction; thread-safe.

#ifndef DATASETD_SERVER_DATASET_DEVICE_TABLE_H_
#define DATASETD_SERVER_DATASET_DEVICE_TABLE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/device/backend.h"
#include "server/dataset/memory_budget.h"

namespace datasetd {

struct ServedDevice {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<MemoryBudget> budget;
  const std::string& name() const { return backend->info().name; }
};

class DeviceTable {
 public:
  // REQUIRES: not empty.
  explicit DeviceTable(std::vector<ServedDevice> devices)
      : devices_(std::move(devices)) {}

  // Empty means the first device. INVALID_ARGUMENT names the served devices.
  absl::StatusOr<ServedDevice*> Find(const std::string& name);
  const std::vector<ServedDevice>& devices() const { return devices_; }

 private:
  std::vector<ServedDevice> devices_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DEVICE_TABLE_H_
