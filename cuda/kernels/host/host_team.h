// A team of one rank: a host thread.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_

#include <cstdint>

#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/program/host_checkpoint.h"

namespace datasetd {

// Instruction set of a build of the chain. Each build has its own team type, so
// that builds share no template instances.
enum class HostIsa : uint8_t { kPlain, kAvx2, kAvx512 };

// Vector operations of a build, see host_vector_*.h. Builds with kCanPick can
// also permute lanes by offsets and split RGB.
template <HostIsa kIsa>
struct HostVector;

template <HostIsa kIsa>
struct HostTeam {
  using Atomics = PlainAtomics;
  using Vector = HostVector<kIsa>;

  // A row of most images, which amortises the cost per block.
  static constexpr int kLanes = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasVectors = true;
  // Half of a first-level cache.
  static constexpr int64_t kRowElements = 4096;
  static constexpr bool kTakesRowsInTurn = true;

  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  void Sync() const {}
  static bool GoesOn() { return datasetd::GoesOn(); }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
