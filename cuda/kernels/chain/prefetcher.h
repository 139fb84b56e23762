// Prefetches host memory in small portions while other work leaves the memory
// bus idle. Does nothing on a device. Not thread-safe.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

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

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_PREFETCHER_H_
