// Vector code that converts and moves bytes.

#ifndef DATASETD_CUDA_KERNELS_HOST_BYTE_VECTOR_H_
#define DATASETD_CUDA_KERNELS_HOST_BYTE_VECTOR_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// A division as multiplication by a double-length reciprocal: x * high + x *
// low, rounded once.
struct Reciprocal {
  float high;
  float low;
};

// Value chains with vector code: [divide] [normalise].
struct VectorChain {
  bool has_divide = false;
  bool has_normalize = false;
  Reciprocal divide = {};
  float mean[kMaxChannels] = {};
  Reciprocal std[kMaxChannels] = {};
};

// The functions of one target.
struct ByteVector {
  // Converts bytes of interleaved channels first_channel .. first_channel +
  // num_channels - 1 by the chain and rounds to `dtype` (kFloat16, kBfloat16,
  // kFloat32). Returns the number done: `count` less a tail shorter than 24
  // that begins with `first_channel`. NaN is not canonical. A 64-byte aligned
  // `to` is written with non-temporal stores: call StreamFence() before another
  // thread reads it.
  int64_t (*convert)(const uint8_t* from, int64_t count,
                     const VectorChain& chain, int first_channel,
                     int num_channels, Dtype dtype, uint8_t* to);

  // Splits `count` pixels of three channels into planes, `plane_stride` bytes
  // apart, mirrored or not: plane[c][i] = from[3 * i + c], or with
  // 3 * (count - 1 - i). REQUIRES: count at least 16.
  void (*split_pixels3)(const uint8_t* from, int32_t count, bool is_mirrored,
                        uint8_t* planes, int32_t plane_stride);

  // Copies `count` pixels of three channels mirrored: to[3 * i + c] =
  // from[3 * (count - 1 - i) + c].
  void (*mirror_pixels3)(const uint8_t* from, int32_t count, uint8_t* to);
};

// Null for targets without a fused multiply-add, which Reciprocal needs.
// REQUIRES: `target` is one of HostTargets().
const ByteVector* ByteVectorOf(HostTarget target);

// That of the best target.
inline const ByteVector* BestByteVector() {
  return ByteVectorOf(HostTargets().front());
}

// Orders this thread's non-temporal stores before its later stores.
void StreamFence();

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_BYTE_VECTOR_H_
