// Prefetches host memory a few cache lines at a time, because all at once would
// occupy the fill buffers that other work needs. Not thread-safe.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_PREFETCHER_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_PREFETCHER_H_

#include <cstdint>

namespace datasetd {

class Prefetcher {
 public:
  Prefetcher() = default;
  Prefetcher(const uint8_t* data, int64_t size_bytes)
      : at_(data), end_(data + size_bytes) {}

  // Prefetches the next lines. kLocality: as for __builtin_prefetch.
  template <int kLocality>
  void FetchSome(int num_lines) {
    for (int i = 0; i < num_lines && at_ < end_; ++i, at_ += 64) {
      __builtin_prefetch(at_, /*rw=*/0, kLocality);
    }
  }

 private:
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_PREFETCHER_H_
