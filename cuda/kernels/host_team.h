// The team of one: a thread of the host. kIsVector names the build, so that
// the two share no template instance.

#ifndef DATASETD_CUDA_KERNELS_HOST_TEAM_H_
#define DATASETD_CUDA_KERNELS_HOST_TEAM_H_

#include <cstdint>

#include "cuda/kernels/ops/atomics.h"

namespace datasetd {

template <bool kIsVector>
struct HostTeam {
  using Atomics = PlainAtomics;

  static constexpr int kLanes = 64;
  // Half of a first-level cache.
  static constexpr int64_t kRowElements = 4096;

  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  void Sync() const {}
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_TEAM_H_
