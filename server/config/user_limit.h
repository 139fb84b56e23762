// Converts a limit of v1::UserLimits to a PerUserLimit.

#ifndef DATASETD_SERVER_CONFIG_USER_LIMIT_H_
#define DATASETD_SERVER_CONFIG_USER_LIMIT_H_

#include <algorithm>
#include <cstdint>

#include "server/dataset/per_user_limit.h"

namespace datasetd {

// A limit that is set applies to all users. An unset limit is half of `total`,
// and does not apply to root and the daemon's own user: a daemon started by a
// user gives that user everything.
inline PerUserLimit UserLimit(bool is_set, uint64_t limit, uint64_t total) {
  if (is_set) return PerUserLimit(limit);
  return PerUserLimit(std::max<uint64_t>(total / 2, 1), 0);
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_CONFIG_USER_LIMIT_H_
