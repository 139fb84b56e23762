// Positions of a batch's fields within a slot, validated.
//
// Immutable after Create; thread-safe.

#ifndef DATASETD_CLIENT_FEED_SLOT_LAYOUT_H_
#define DATASETD_CLIENT_FEED_SLOT_LAYOUT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

inline constexpr int kMaxDimensions = 8;

struct FieldLayout {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  int num_dimensions = 1;
  // Rows of a group, which is an extent of its own; 1: there are no groups.
  int64_t group_size = 1;
  // Shape of a full batch, [batch_size, ...], or with groups [batch_size /
  // group_size, group_size, ...].
  std::array<int64_t, kMaxDimensions> shape = {};
  std::array<int64_t, kMaxDimensions> strides = {};  // in elements
  uint64_t offset_bytes = 0;
};

class SlotLayout {
 public:
  // Validates the daemon's numbers, from which pointers are computed.
  // `group_size` is that of the feed's options; 0: no groups.
  //   INTERNAL          a field does not fit its slot, or the slots do not fit
  //                     `slab_bytes`
  //   INVALID_ARGUMENT  a field has no extent left for groups
  static absl::StatusOr<SlotLayout> Create(const v1::SlotLayout& message,
                                           uint64_t slab_bytes,
                                           uint32_t group_size = 0);

  uint32_t num_slots() const { return num_slots_; }
  uint64_t slot_stride_bytes() const { return slot_stride_bytes_; }
  int64_t batch_size() const { return batch_size_; }  // in rows
  int num_fields() const { return static_cast<int>(fields_.size()) - 1; }

  // The last entry, fields()[num_fields()], is the sample indices.
  const std::vector<FieldLayout>& fields() const { return fields_; }

 private:
  uint32_t num_slots_ = 0;
  uint64_t slot_stride_bytes_ = 0;
  int64_t batch_size_ = 0;
  std::vector<FieldLayout> fields_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_SLOT_LAYOUT_H_
