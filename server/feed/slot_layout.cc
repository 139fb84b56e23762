#include "server/feed/slot_layout.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
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

// Shape and strides of one field, without its place.
SlotField Describe(const FieldSpec& field, const FieldProgram& program,
                   int64_t batch_size) {
  SlotField slot_field;
  slot_field.name = field.name;
  slot_field.dtype = program.out_dtype;
  const int64_t height = program.out_height;
  const int64_t width = program.out_width;
  const int64_t channels = program.is_image ? program.out_channels : 1;
  if (program.is_image) {
    slot_field.shape = {batch_size, channels, height, width};
    if (program.layout == Layout::kNhwc) {
      slot_field.strides = {height * width * channels, 1, width * channels,
                            channels};
    } else {
      slot_field.strides = {channels * height * width, height * width, width,
                            1};
    }
    return slot_field;
  }
  slot_field.shape = {batch_size};
  if (program.num_classes > 0) {
    slot_field.shape.push_back(program.num_classes);
  } else {
    slot_field.shape.insert(slot_field.shape.end(), field.shape.begin(),
                            field.shape.end());
  }
  slot_field.strides.resize(slot_field.shape.size());
  int64_t stride = 1;
  for (size_t i = slot_field.shape.size(); i-- > 0;) {
    slot_field.strides[i] = stride;
    if (i > 0) stride *= slot_field.shape[i];
  }
  return slot_field;
}

}  // namespace

absl::StatusOr<SlotLayout> ComputeSlotLayout(absl::Span<const FieldSpec> fields,
                                             absl::Span<FieldProgram> programs,
                                             int64_t batch_size) {
  Require(fields.size() == programs.size(), "a program for each field");
  constexpr int64_t kMaxBatchSize = std::numeric_limits<int32_t>::max();
  if (batch_size < 1 || batch_size > kMaxBatchSize) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size is ", batch_size,
                                                   "; it must be within 1..",
                                                   kMaxBatchSize));
  }
  SlotLayout layout;
  int64_t end = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    SlotField field = Describe(fields[i], programs[i], batch_size);
    field.size_bytes = SaturatingProduct(
        batch_size, programs[i].out_height, programs[i].out_width,
        programs[i].out_channels, DtypeSizeBytes(programs[i].out_dtype));
    field.offset_bytes = AlignUp(end);
    end = SaturatingAdd(field.offset_bytes, field.size_bytes);
    if (end > kMaxSlotBytes) return TooLarge(batch_size);
    programs[i].offset_bytes = field.offset_bytes;
    layout.fields.push_back(std::move(field));
  }
  layout.indices_offset_bytes = AlignUp(end);
  layout.slot_stride_bytes =
      AlignUp(SaturatingAdd(layout.indices_offset_bytes,
                            SaturatingMultiply(batch_size, sizeof(int64_t))));
  if (layout.slot_stride_bytes > kMaxSlotBytes) return TooLarge(batch_size);
  return layout;
}

}  // namespace datasetd
