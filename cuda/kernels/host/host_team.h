// The team of one: a thread of the host.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_

#include <cstdint>

#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/program/host_checkpoint.h"

namespace datasetd {

// The instructions of a build of the chain. Each is compiled by itself, and has
// its own team, so that they share no template instance.
enum class HostIsa : uint8_t { kPlain, kAvx2, kAvx512 };

// What a build does with its vectors by name: host_vector_*.h. Those that
// kCanPick permute lanes by offsets, too, and take RGB apart.
template <HostIsa kIsa>
struct HostVector;

template <HostIsa kIsa>
struct HostTeam {
  using Atomics = PlainAtomics;
  using Vector = HostVector<kIsa>;

  // A row of most images: what a block costs beside its lanes is theirs to
  // share.
  static constexpr int kLanes = 256;
  static constexpr int kGroup = 32;
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
