// Opens the devices of a configuration.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
#define DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cuda/device/backend.h"
#include "datasetd/v1/server.pb.h"
#include "server/dataset/device_table.h"

namespace datasetd {

// Opens each device with its budget. If none is named: every GPU, or the host
// if there is no GPU. The result is never empty.
//   UNAVAILABLE       a GPU is not available
//   INVALID_ARGUMENT  as CreateBackend for a bad name
absl::StatusOr<std::vector<ServedDevice>> OpenDevices(const v1::Config& config);

// The kinds of memory export that 'slab_export' allows; empty: all.
//   INVALID_ARGUMENT  it names none
absl::StatusOr<std::vector<ExportKind>> AllowedExports(
    const v1::Config& config);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
