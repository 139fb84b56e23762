// The devices that a configuration asks for.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
#define DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_

#include <vector>

#include "absl/status/statusor.h"
#include "cuda/device/backend.h"
#include "datasetd/v1/server.pb.h"
#include "server/dataset/device_table.h"

namespace datasetd {

// Opens them, each with its budget; where none is named, every GPU, or the host
// where there is none. Never empty.
//   UNAVAILABLE       a GPU cannot be had
//   INVALID_ARGUMENT  as CreateBackend says it of a name
absl::StatusOr<std::vector<ServedDevice>> OpenDevices(const v1::Config& config);

// The ways to share device memory that 'slab_export' allows; empty: all.
//   INVALID_ARGUMENT  it names none
absl::StatusOr<std::vector<ExportKind>> AllowedExports(
    const v1::Config& config);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
