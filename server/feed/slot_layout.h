// The layout of a batch's fields in a slot.

#ifndef DATASETD_SERVER_FEED_SLOT_LAYOUT_H_
#define DATASETD_SERVER_FEED_SLOT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// Offsets and strides of slots are multiples of this.
inline constexpr int64_t kSlotAlignmentBytes = 256;

// The largest slot; the size of 64 of them is far below the int64 limit.
inline constexpr int64_t kMaxSlotBytes = int64_t{1} << 48;

struct SlotField {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  // Shape of a whole batch: [B, C, H, W] for images whatever their layout, [B,
  // num_classes] for mixed labels, [B, ...] for other fields.
  std::vector<int64_t> shape;
  // In elements, as in DLPack; NHWC is visible here only.
  std::vector<int64_t> strides;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

struct SlotLayout {
  std::vector<SlotField> fields;
  // int64 [B]: the sample index of each row.
  int64_t indices_offset_bytes = 0;
  int64_t slot_stride_bytes = 0;
};

// Lays out `batch_size` samples of all fields and their indices, and sets
// offset_bytes of the programs that CompileField made from `fields`. REQUIRES:
// as many programs as fields, in the same order.
//   INVALID_ARGUMENT    batch_size is not within 1..2^31 - 1
//   RESOURCE_EXHAUSTED  a slot would be larger than kMaxSlotBytes
absl::StatusOr<SlotLayout> ComputeSlotLayout(absl::Span<const FieldSpec> fields,
                                             absl::Span<FieldProgram> programs,
                                             int64_t batch_size);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SLOT_LAYOUT_H_
