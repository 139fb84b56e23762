#include "client/feed/copied_tensor.h"

#include <cstdint>
#include <cstring>
#include <new>

#include "base/dtype.h"
#include "client/feed/field_tensor.h"

namespace datasetd::client {
namespace {

constexpr std::align_val_t kAlignment{64};

// The data follows.
struct alignas(64) CopiedTensor : ShapedTensor {};

void Delete(DLManagedTensor* tensor) {
  operator delete(tensor->manager_ctx, kAlignment);
}

}  // namespace

// SlotLayout::Create checked that all rows fit a slot.
DLManagedTensor* MakeCopiedTensor(const FieldLayout& layout,
                                  int64_t num_samples, const void* data) {
  int64_t size_bytes =
      num_samples / layout.group_size * DtypeSizeBytes(layout.dtype);
  for (int i = 1; i < layout.num_dimensions; ++i) size_bytes *= layout.shape[i];
  const auto size = static_cast<size_t>(size_bytes);
  auto* const item =
      new (operator new(sizeof(CopiedTensor) + size, kAlignment)) CopiedTensor;
  void* const copy = item + 1;
  std::memcpy(copy, data, size);
  item->Set(layout, num_samples, copy, {kDLCPU, 0});
  item->tensor.manager_ctx = item;
  item->tensor.deleter = &Delete;
  return &item->tensor;
}

}  // namespace datasetd::client
