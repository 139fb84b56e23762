// Check of internal invariants. Not for conditions that depend on input or on
// the environment.

#ifndef DATASETD_BASE_REQUIRE_H_
#define DATASETD_BASE_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace datasetd {

// Aborts the process with the message `what` unless `condition` holds.
inline void Require(bool condition, const char* what) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "datasetd: broken promise: %s\n", what);
  std::abort();
}

}  // namespace datasetd

#endif  // DATASETD_BASE_REQUIRE_H_
