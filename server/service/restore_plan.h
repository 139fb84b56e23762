// What a daemon does with the datasets of the one before it.

#ifndef DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_
#define DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "datasetd/v1/manifest.pb.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

// A dataset comes back FAILED when so many daemons in a row ended while they
// read it and no other: a crash does that every time, a power cut does not.
inline constexpr uint32_t kMaxInterruptedRestores = 3;
// So does every dataset of a user when that many daemons ended while they read
// one of the user's. Below StartLimitBurst= of the unit.
inline constexpr uint32_t kMaxInterruptedRestoresOfUser = 8;

struct RestorePlan {
  std::vector<RestoredDataset> datasets;
  // Name and reason of those whose spec is none of this version.
  std::vector<std::pair<std::string, absl::Status>> left_out;
};

// `daemon_uid` is the daemon's own.
RestorePlan PlanRestore(const std::vector<v1::Manifest::Entry>& entries,
                        uint32_t daemon_uid);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_RESTORE_PLAN_H_
