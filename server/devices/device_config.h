// Opens the devices of a configuration.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
#define DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda/backend/backend.h"
#include "cuda/backend/host_memory.h"
#include "datasetd/v1/server.pb.h"
#include "server/dataset/device_table.h"
#include "server/dataset/memory_budget.h"

namespace datasetd {

// Opens each device with its budget. If none is named: every GPU that can be
// used, with a warning for each other one; or the host if there is none. The
// result is never empty.
//   UNAVAILABLE       a GPU that is named is not available
//   INVALID_ARGUMENT  as CreateBackend for a bad name; a GPU is named twice
// Also other errors of a named GPU, such as RESOURCE_EXHAUSTED.
absl::StatusOr<std::vector<ServedDevice>> OpenDevices(const v1::Config& config);

// What to tell at the start about a budget of host memory, `key` of the
// configuration, which is derived if `is_configured` is false; empty if
// nothing.
std::string BudgetWarning(absl::string_view key, uint64_t budget_bytes,
                          bool is_configured, const ControlGroupLimits& limits);

// The budget of host memory that is pinned for samples; null if no device is a
// GPU. RESOURCE_EXHAUSTED if it cannot be told how much is free.
absl::StatusOr<std::unique_ptr<MemoryBudget>> OpenPinnedBudget(
    const v1::Config& config, const std::vector<ServedDevice>& devices);

// Writes the UUID of the first device for "{gpu}" in the paths of the sockets,
// and makes their directory then. If none is named it is the first GPU, also
// where OpenDevices does not use that.
//   INVALID_ARGUMENT  the first device is no GPU, or a path becomes too long
// Also errors of OpenDevices, and of making the directory.
absl::Status NameSocket(v1::Config* config);

// The kinds of memory export that 'slab_export' allows; empty: all.
//   INVALID_ARGUMENT  it names none
absl::StatusOr<std::vector<ExportKind>> AllowedExports(
    const v1::Config& config);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_CONFIG_H_
