// A DLPack tensor of one field of one batch, with the data its deleter needs.

#ifndef DATASETD_CLIENT_FEED_FIELD_TENSOR_H_
#define DATASETD_CLIENT_FEED_FIELD_TENSOR_H_

#include <dlpack/dlpack.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/dtype.h"
#include "client/feed/slot_layout.h"

namespace datasetd::client {

class FeedCore;

constexpr DLDataType ToDlpack(Dtype dtype) {
  const auto bits = static_cast<uint8_t>(8 * DtypeSizeBytes(dtype));
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kUint16:
    case Dtype::kUint32:
      return {kDLUInt, bits, 1};
    case Dtype::kInt8:
    case Dtype::kInt16:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return {kDLInt, bits, 1};
    case Dtype::kBfloat16:
      return {kDLBfloat, bits, 1};
    case Dtype::kFloat16:
    case Dtype::kFloat32:
    case Dtype::kFloat64:
      return {kDLFloat, bits, 1};
  }
  return {kDLOpaqueHandle, 0, 0};
}

// A DLPack tensor with the extents that it points to.
struct ShapedTensor {
  DLManagedTensor tensor = {};
  std::array<int64_t, kMaxDimensions> shape = {};
  std::array<int64_t, kMaxDimensions> strides = {};

  void Set(const FieldLayout& layout, int64_t num_samples, void* data,
           DLDevice device) {
    shape = layout.shape;
    shape[0] = num_samples / layout.group_size;
    strides = layout.strides;
    tensor.dl_tensor = {.data = data,
                        .device = device,
                        .ndim = layout.num_dimensions,
                        .dtype = ToDlpack(layout.dtype),
                        .shape = shape.data(),
                        .strides = strides.data(),
                        .byte_offset = 0};
  }
};

// The feed keeps one per slot and field, which avoids an allocation per batch.
// A second tensor of the same field while the first exists is heap-allocated.
struct FieldTensor : ShapedTensor {
  FeedCore* core = nullptr;
  uint32_t slot = 0;
  uint32_t field = 0;
  bool is_from_heap = false;
  std::atomic<bool> is_used{false};
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FIELD_TENSOR_H_
