// Addition to accumulators that the ranks of a team share. All are integers, so
// the result does not depend on the order.

#ifndef DATASETD_CUDA_KERNELS_OPS_ATOMICS_H_
#define DATASETD_CUDA_KERNELS_OPS_ATOMICS_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

// For teams of one rank.
struct PlainAtomics {
  static DATASETD_HOST_DEVICE void Add(int64_t* to, int64_t value) {
    *to += value;
  }
  static DATASETD_HOST_DEVICE void Add(uint32_t* to, uint32_t value) {
    *to += value;
  }
  static DATASETD_HOST_DEVICE void Min(uint32_t* to, uint32_t value) {
    *to = value < *to ? value : *to;
  }
  static DATASETD_HOST_DEVICE void Max(uint32_t* to, uint32_t value) {
    *to = value > *to ? value : *to;
  }
};

#if defined(__CUDACC__)
// For the threads of a CUDA block. Accumulators are in shared or device memory.
struct BlockAtomics {
  static __device__ void Add(int64_t* to, int64_t value) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to),  // NOLINT: CUDA's type
              static_cast<unsigned long long>(value));    // NOLINT
  }
  static __device__ void Add(uint32_t* to, uint32_t value) {
    atomicAdd(to, value);
  }
  static __device__ void Min(uint32_t* to, uint32_t value) {
    atomicMin(to, value);
  }
  static __device__ void Max(uint32_t* to, uint32_t value) {
    atomicMax(to, value);
  }
};
#endif

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ATOMICS_H_
