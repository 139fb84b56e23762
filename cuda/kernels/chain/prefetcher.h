// Prefetches host memory in small portions while other work leaves the memory
// bus idle. Does nothing on a device. Not thread-safe.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
#define DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

// A template over the team, as in chain_lanes.h.
template <typename Team>
class Prefetcher {
 public:
  // Begins to prefetch `data` and drops what is left of earlier data.
  DATASETD_HOST_DEVICE void Begin(const uint8_t* data, int64_t size_bytes) {
    at_ = data;
    end_ = data + size_bytes;
  }

  // Prefetches the next few cache lines.
  DATASETD_HOST_DEVICE void AskForSome() {
    if constexpr (Team::kHasVectors) {
      for (int i = 0; i < kLinesAtOnce && at_ < end_; ++i) {
        // Into the second-level cache, since the first is in use.
        __builtin_prefetch(at_, /*rw=*/0, /*locality=*/2);
        at_ += kLineBytes;
      }
    }
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  // Twice the number of outstanding requests of a core.
  static constexpr int kLinesAtOnce = 32;

  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
