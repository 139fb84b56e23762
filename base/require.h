// For what cannot happen: a broken promise between parts of this program. Not
// for anything that the outside world decides.

#ifndef DATASETD_BASE_REQUIRE_H_
#define DATASETD_BASE_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace datasetd {

// Ends the process, with `what`, unless `condition` holds.
inline void Require(bool condition, const char* what) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "datasetd: broken promise: %s\n", what);
  std::abort();
}

}  // namespace datasetd

#endif  // DATASETD_BASE_REQUIRE_H_
