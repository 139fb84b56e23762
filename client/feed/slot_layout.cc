#include "client/feed/slot_layout.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/feed_ring.h"

namespace datasetd::client {
namespace {

absl::Status Bad(const std::string& name, const std::string& what) {
  return absl::InternalError(
      absl::StrCat("the daemon's layout of field '", name, "' ", what));
}

// Returns the bytes from the field's first element to the end of its last one,
// or -1 on overflow.
int64_t ExtentBytes(const FieldLayout& field) {
  int64_t last = 0;
  for (int i = 0; i < field.num_dimensions; ++i) {
    int64_t span;
    if (__builtin_mul_overflow(field.shape[i] - 1, field.strides[i], &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return -1;
    }
  }
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, DtypeSizeBytes(field.dtype), &bytes)) {
    return -1;
  }
  return bytes;
}

// Returns the bytes of all elements, or -1 on overflow.
int64_t ElementBytes(const FieldLayout& field) {
  int64_t bytes = DtypeSizeBytes(field.dtype);
  for (int i = 0; i < field.num_dimensions; ++i) {
    if (__builtin_mul_overflow(bytes, field.shape[i], &bytes)) return -1;
  }
  return bytes;
}

absl::Status CheckFits(const FieldLayout& field, uint64_t slot_bytes) {
  const int64_t bytes = ExtentBytes(field);
  if (bytes < 0 || field.offset_bytes > slot_bytes ||
      static_cast<uint64_t>(bytes) > slot_bytes - field.offset_bytes ||
      field.offset_bytes % DtypeSizeBytes(field.dtype) != 0) {
    return Bad(field.name,
               absl::StrCat("does not fit a slot of ", slot_bytes, " bytes"));
  }
  // MakeCopiedTensor copies all elements as one piece.
  const int64_t element_bytes = ElementBytes(field);
  if (element_bytes < 0 || element_bytes > bytes) {
    return Bad(field.name, absl::StrCat("has elements that overlap: they span ",
                                        bytes, " bytes"));
  }
  return absl::OkStatus();
}

// Makes groups of the field's rows.
absl::Status Group(int64_t group_size, FieldLayout& field) {
  if (field.num_dimensions == kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group_size: field '", field.name, "' has ", kMaxDimensions,
        " dimensions with the batch's, and none is left for groups"));
  }
  std::copy_backward(field.shape.begin(), field.shape.end() - 1,
                     field.shape.end());
  std::copy_backward(field.strides.begin(), field.strides.end() - 1,
                     field.strides.end());
  field.shape[0] /= group_size;
  field.shape[1] = group_size;
  if (__builtin_mul_overflow(field.strides[0], group_size, &field.strides[0])) {
    return Bad(field.name, "has a stride that is too large");
  }
  ++field.num_dimensions;
  field.group_size = group_size;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SlotLayout> SlotLayout::Create(const v1::SlotLayout& message,
                                              uint64_t slab_bytes,
                                              uint32_t group_size) {
  SlotLayout layout;
  layout.num_slots_ = message.num_slots();
  layout.slot_stride_bytes_ = message.slot_stride_bytes();
  if (layout.num_slots_ == 0 || layout.num_slots_ > ring::kMaxSlots ||
      layout.slot_stride_bytes_ == 0 || layout.slot_stride_bytes_ % 8 != 0 ||
      layout.slot_stride_bytes_ > slab_bytes / layout.num_slots_) {
    return absl::InternalError(absl::StrCat(
        "the daemon's slab of ", slab_bytes, " bytes does not hold ",
        layout.num_slots_, " slots of ", layout.slot_stride_bytes_));
  }
  if (message.fields().empty()) {
    return absl::InternalError("the daemon's layout has no field");
  }
  for (const v1::SlotField& source : message.fields()) {
    FieldLayout field;
    field.name = source.name();
    field.dtype = static_cast<Dtype>(source.dtype());
    field.offset_bytes = source.offset_bytes();
    field.num_dimensions = source.shape_size();
    if (DtypeSizeBytes(field.dtype) == 0) {
      return Bad(field.name, absl::StrCat("has the unknown dtype ",
                                          static_cast<int>(source.dtype())));
    }
    if (source.shape_size() < 1 || source.shape_size() > kMaxDimensions ||
        source.strides_size() != source.shape_size()) {
      return Bad(field.name,
                 absl::StrCat("has ", source.shape_size(), " extents and ",
                              source.strides_size(), " strides"));
    }
    for (int i = 0; i < source.shape_size(); ++i) {
      field.shape[i] = source.shape(i);
      field.strides[i] = source.strides(i);
      if (field.shape[i] < 1 || field.strides[i] < 0) {
        return Bad(field.name, "has an extent below 1 or a stride below 0");
      }
    }
    if (layout.fields_.empty()) layout.batch_size_ = field.shape[0];
    if (field.shape[0] != layout.batch_size_) {
      return Bad(field.name,
                 absl::StrCat("has ", field.shape[0], " rows, the first field ",
                              layout.batch_size_));
    }
    DATASETD_RETURN_IF_ERROR(CheckFits(field, layout.slot_stride_bytes_));
    layout.fields_.push_back(std::move(field));
  }
  FieldLayout indices;
  indices.name = "indices";
  indices.dtype = Dtype::kInt64;
  indices.shape[0] = layout.batch_size_;
  indices.strides[0] = 1;
  indices.offset_bytes = message.indices_offset_bytes();
  DATASETD_RETURN_IF_ERROR(CheckFits(indices, layout.slot_stride_bytes_));
  layout.fields_.push_back(std::move(indices));
  if (group_size == 0) return layout;
  if (layout.batch_size_ % group_size != 0) {
    return absl::InternalError(
        absl::StrCat("the daemon's slots have ", layout.batch_size_,
                     " rows, which are no groups of ", group_size));
  }
  for (FieldLayout& field : layout.fields_) {
    DATASETD_RETURN_IF_ERROR(Group(group_size, field));
  }
  return layout;
}

}  // namespace datasetd::client
