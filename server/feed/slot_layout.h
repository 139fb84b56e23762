// The layout of a batch's fields in a slot.

#ifndef DATASETD_SERVER_FEED_SLOT_LAYOUT_H_
#define DATASETD_SERVER_FEED_SLOT_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// Offsets and strides of slots are multiples of this.
inline constexpr int64_t kSlotAlignmentBytes = 256;

// The largest slot; the size of 64 of them is far below the int64 limit.
inline constexpr int64_t kMaxSlotBytes = int64_t{1} << 48;

// Lays out `batch_size` samples of all fields and their indices, and sets
// offset_bytes of the programs that CompileField made from `fields`. Mixed
// labels have the shape [B, num_classes]. num_slots is not set. REQUIRES: as
// many programs as fields, in the same order.
//   INVALID_ARGUMENT    batch_size is not within 1..2^31 - 1
//   RESOURCE_EXHAUSTED  a slot would be larger than kMaxSlotBytes
absl::StatusOr<v1::SlotLayout> ComputeSlotLayout(
    absl::Span<const FieldSpec> fields, absl::Span<FieldProgram> programs,
    int64_t batch_size);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SLOT_LAYOUT_H_
