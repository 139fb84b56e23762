#include "server/feed/slot_layout.h"

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/require.h"

namespace datasetd {
namespace {

int64_t AlignUp(int64_t bytes) {
  return SaturatingRoundUp(bytes, kSlotAlignmentBytes);
}

absl::Status TooLarge(int64_t batch_size) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a batch of ", batch_size, " samples takes more than ",
                   kMaxSlotBytes, " bytes: use a smaller batch_size"));
}

// Describes one field, without its place.
v1::SlotField Describe(const FieldSpec& field, const FieldProgram& program,
                       int64_t batch_size) {
  std::vector<int64_t> shape = {batch_size};
  std::vector<int64_t> strides;
  if (program.is_image) {
    const int64_t height = program.out_height;
    const int64_t width = program.out_width;
    const int64_t channels = program.out_channels;
    shape = {batch_size, channels, height, width};
    if (program.layout == Layout::kNhwc) {
      strides = {height * width * channels, 1, width * channels, channels};
    } else {
      strides = {channels * height * width, height * width, width, 1};
    }
  } else {
    if (program.num_classes > 0) {
      shape.push_back(program.num_classes);
    } else {
      shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    }
    strides.resize(shape.size());
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      if (i > 0) stride *= shape[i];
    }
  }
  v1::SlotField slot_field;
  slot_field.set_name(field.name);
  slot_field.set_dtype(static_cast<v1::Dtype>(program.out_dtype));
  slot_field.mutable_shape()->Assign(shape.begin(), shape.end());
  slot_field.mutable_strides()->Assign(strides.begin(), strides.end());
  return slot_field;
}

}  // namespace

absl::StatusOr<v1::SlotLayout> ComputeSlotLayout(
    absl::Span<const FieldSpec> fields, absl::Span<FieldProgram> programs,
    int64_t batch_size) {
  Require(fields.size() == programs.size(), "a program for each field");
  constexpr int64_t kMaxBatchSize = std::numeric_limits<int32_t>::max();
  if (batch_size < 1 || batch_size > kMaxBatchSize) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size is ", batch_size,
                                                   "; it must be within 1..",
                                                   kMaxBatchSize));
  }
  v1::SlotLayout layout;
  int64_t end = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    FieldProgram& program = programs[i];
    program.offset_bytes = AlignUp(end);
    end =
        SaturatingAdd(program.offset_bytes,
                      SaturatingProduct(batch_size, program.out_height,
                                        program.out_width, program.out_channels,
                                        DtypeSizeBytes(program.out_dtype)));
    if (end > kMaxSlotBytes) return TooLarge(batch_size);
    v1::SlotField& field = *layout.add_fields();
    field = Describe(fields[i], program, batch_size);
    field.set_offset_bytes(static_cast<uint64_t>(program.offset_bytes));
  }
  const int64_t indices_offset = AlignUp(end);
  const int64_t stride = AlignUp(SaturatingAdd(
      indices_offset, SaturatingMultiply(batch_size, sizeof(int64_t))));
  if (stride > kMaxSlotBytes) return TooLarge(batch_size);
  layout.set_indices_offset_bytes(static_cast<uint64_t>(indices_offset));
  layout.set_slot_stride_bytes(static_cast<uint64_t>(stride));
  return layout;
}

}  // namespace datasetd
