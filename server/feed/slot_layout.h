// Where the fields of a batch lie in a slot.

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

// Offsets and strides of slots are multiples of it.
inline constexpr int64_t kSlotAlignmentBytes = 256;

// The largest slot: 64 of them are far from overflowing an int64.
inline constexpr int64_t kMaxSlotBytes = int64_t{1} << 48;

struct SlotField {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  // Of a whole batch: an image is [B, C, H, W] whatever its layout, mixed
  // labels are [B, num_classes], another field [B, ...].
  std::vector<int64_t> shape;
  // In elements, as in DLPack; NHWC shows here only.
  std::vector<int64_t> strides;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

struct SlotLayout {
  std::vector<SlotField> fields;
  // int64 [B]: the sample index of every row.
  int64_t indices_offset_bytes = 0;
  int64_t slot_stride_bytes = 0;
};

// Lays out `batch_size` samples of all fields and their indices, and sets
// offset_bytes of the programs, which CompileField made from `fields` in the
// same order.
//   INVALID_ARGUMENT    batch_size is not within 1..2^31 - 1
//   RESOURCE_EXHAUSTED  a slot would be larger than kMaxSlotBytes
// REQUIRES: as many programs as fields.
absl::StatusOr<SlotLayout> ComputeSlotLayout(absl::Span<const FieldSpec> fields,
                                             absl::Span<FieldProgram> programs,
                                             int64_t batch_size);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SLOT_LAYOUT_H_
