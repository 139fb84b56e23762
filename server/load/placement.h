// Decides which memory takes which samples of a dataset, before any is read.
//
// The parts follow each other in the order of the samples: the devices', then
// pinned host memory. Each field is divided for itself, in the same
// proportions.

#ifndef DATASETD_SERVER_LOAD_PLACEMENT_H_
#define DATASETD_SERVER_LOAD_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/device_list.h"
#include "server/dataset/memory_budget.h"
#include "server/load/load_plan.h"

namespace datasetd {

// The placement that a spec asks for, with its devices found.
struct PlacementRequest {
  DevicePlacement devices;
  v1::Residency residency = v1::RESIDENCY_DEVICE;
  int64_t device_bytes = 0;
  // The budget of pinned host memory; null: there is none.
  MemoryBudget* pinned = nullptr;
  bool has_cache = false;

  // Returns the budget of a Placement::Part's memory, by its device.
  MemoryBudget* BudgetOf(const ServedDevice* device) const {
    return device == nullptr ? pinned : device->budget.get();
  }
};

struct Placement {
  struct Part {
    ServedDevice* device = nullptr;  // null: pinned host memory
    int64_t size_bytes = 0;
    // The most bytes of each field, in whole samples. Empty if the device has
    // all samples, and the indices of packed fields.
    std::vector<int64_t> field_bytes;
  };
  // Never AUTO: what was chosen for it.
  v1::Residency residency = v1::RESIDENCY_DEVICE;
  // Where feeds may run, the first by default.
  std::vector<ServedDevice*> devices;
  std::vector<Part> parts;
  // True if each part has all samples, on a device of its own.
  bool is_replicated = false;
  // With MAPPED: the samples, which are in a file and in no part.
  int64_t mapped_bytes = 0;

  // False if samples must be copied to the device for each batch.
  bool is_whole() const {
    return parts.empty() || parts.front().field_bytes.empty();
  }
  // The size of all samples; replicas count once.
  int64_t resident_bytes() const;
  // As shown to clients: one for each device, the host's memory with the first.
  std::vector<v1::Placement> Describe() const;
};

// Also lets the devices of a shard read each other's memory.
//   INVALID_ARGUMENT     the residency is unknown on this device, or
//                        device_bytes does not fit it
//   FAILED_PRECONDITION  two devices of a shard cannot read each other's
//                        memory; or MAPPED without a cache
absl::Status CheckPlacement(const PlacementRequest& request);

// `rooms` are the most bytes that each device may take, by which AUTO decides;
// other residencies do without. REQUIRES: CheckPlacement(request) is OK.
Placement PlanPlacement(const PlacementRequest& request, const LoadPlan& plan,
                        absl::Span<const int64_t> rooms);

// The bytes that AUTO may take of each device: the part of its budget that is
// free for this user, less a share for feeds if not all samples fit into that.
// Empty for other residencies.
std::vector<int64_t> RoomsOf(const PlacementRequest& request,
                             const LoadPlan& plan, uid_t uid,
                             const MemoryBudget::Terms& terms);

// The memory of a dataset, before it is allocated.
struct PlacedMemory {
  PlacedMemory() = default;
  // For all samples on one device.
  PlacedMemory(Reservation reservation) {  // NOLINT(runtime/explicit)
    reservations.push_back(std::move(reservation));
  }

  // If it has no parts, all samples go to the device that loads them.
  Placement placement;
  // One for each part.
  std::vector<Reservation> reservations;

  // Takes out what replicas after the first need, in the devices' order.
  std::vector<Reservation> TakeReplicas();
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_PLACEMENT_H_
