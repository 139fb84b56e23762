// A limit per user; 0: unlimited.

#ifndef DATASETD_SERVER_DATASET_PER_USER_LIMIT_H_
#define DATASETD_SERVER_DATASET_PER_USER_LIMIT_H_

#include <cstdint>

namespace datasetd {

struct PerUserLimit {
  PerUserLimit() = default;
  // The same for all users.
  PerUserLimit(uint64_t limit)  // NOLINT(runtime/explicit)
      : others(limit), privileged(limit) {}
  PerUserLimit(uint64_t others, uint64_t privileged)
      : others(others), privileged(privileged) {}

  uint64_t Of(bool is_privileged) const {
    return is_privileged ? privileged : others;
  }

  uint64_t others = 0;
  uint64_t privileged = 0;  // for root and the daemon's own user
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_PER_USER_LIMIT_H_
