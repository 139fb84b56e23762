// The devices that a dataset is asked for, as DatasetSpec.device writes them:
//
//   ""                        the daemon's first device
//   "cuda:0", "cpu", "GPU-…"  one device
//   "each"                    a replica on every GPU of the daemon
//   "cuda:0,cuda:2"           a replica on each of them
//   "shard"                   a part on every GPU of the daemon
//   "shard:cuda:0,cuda:1"     a part on each of them

#ifndef DATASETD_SERVER_DATASET_DEVICE_LIST_H_
#define DATASETD_SERVER_DATASET_DEVICE_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/dataset/device_table.h"

namespace datasetd {

enum class PlacementKind {
  kOne,    // all samples on one device
  kEach,   // all samples on each device
  kShard,  // the samples divided over the devices
};

// Text that names no device yet.
struct DeviceList {
  PlacementKind kind = PlacementKind::kOne;
  // As written; empty: the first device, or, with kEach and kShard, every GPU.
  std::vector<std::string> names;
};

// INVALID_ARGUMENT if it is none of the above. Whether the daemon has the
// devices is not asked.
absl::StatusOr<DeviceList> ParseDeviceList(absl::string_view text);

// A list whose devices are known.
struct DevicePlacement {
  PlacementKind kind = PlacementKind::kOne;
  // In the daemon's order, each once; at least one. More than one unless the
  // kind is kOne.
  std::vector<ServedDevice*> devices;

  ServedDevice& first() const { return *devices.front(); }
  // The text that all lists of these devices have in common.
  std::string Text() const;
};

// Every GPU is every one that serves, or every device where the daemon has no
// GPU. A list of one device is kOne.
//   INVALID_ARGUMENT     as ParseDeviceList; a device is not served by the
//                        daemon, or named twice
//   FAILED_PRECONDITION  a device has failed
absl::StatusOr<DevicePlacement> FindDevices(DeviceTable& table,
                                            absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DEVICE_LIST_H_
