// Plans the restore of the previous daemon's datasets.

#ifndef DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_
#define DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_

#include <cstdint>
#include <vector>

#include "datasetd/v1/manifest.pb.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

// A dataset is restored as FAILED after this many consecutive daemons ended
// while reading only it: a crash does that every time, a power failure does
// not.
inline constexpr uint32_t kMaxInterruptedRestores = 3;
// All datasets of a user are restored as FAILED after this many daemons ended
// while reading one of them. Less than StartLimitBurst= of the unit.
inline constexpr uint32_t kMaxInterruptedRestoresOfUser = 8;

// Returns a dataset for each entry. That of a spec which this version does not
// support is refused, so that it can be unloaded. `daemon_uid` is the uid of
// the daemon's user.
std::vector<RestoredDataset> PlanRestore(
    const std::vector<v1::Manifest::Entry>& entries, uint32_t daemon_uid);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_
