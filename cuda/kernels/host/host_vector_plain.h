// HostVector for any processor.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_PLAIN_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_PLAIN_H_

#include <cstring>

#include "cuda/kernels/host/host_team.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

template <>
struct HostVector<HostIsa::kPlain> {
  // Vector extension of GCC and clang.
  typedef float Floats __attribute__((vector_size(16)));

  static constexpr int kFloats = 4;
  static constexpr bool kCanPick = false;

  static Floats Load(const float* from) {
    Floats x;
    memcpy(&x, from, sizeof(x));
    return x;
  }
  static void Store(Floats x, float* to) { memcpy(to, &x, sizeof(x)); }
  static Floats Add(Floats x, Floats y) { return x + y; }
  static Floats Multiply(Floats x, Floats y) { return x * y; }

  static Floats All(float x) { return Floats{x, x, x, x}; }
  // Clamps to 0..bound; NaN stays NaN.
  static Floats Clamp(Floats x, Floats bound) {
    const Floats low = x < 0.0f ? Floats{} : x;
    return low > bound ? bound : low;
  }

  // Stores CanonicalFloat(x).
  static void Stream(Floats x, float* to) {
    for (int i = 0; i < kFloats; ++i) to[i] = CanonicalFloat(x[i]);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_PLAIN_H_
