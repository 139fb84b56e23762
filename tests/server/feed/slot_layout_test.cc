#include "server/feed/slot_layout.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FieldSpec kImage = {
    .name = "image", .shape = {32, 24, 3}, .is_image = true};
const FieldSpec kLabel = {.name = "label", .dtype = Dtype::kUint8};
const FieldSpec kBoxes = {
    .name = "boxes", .dtype = Dtype::kFloat32, .shape = {5, 4}};

std::vector<FieldProgram> Programs(const std::vector<FieldSpec>& fields,
                                   Layout layout) {
  std::vector<FieldProgram> programs;
  for (const FieldSpec& field : fields) {
    programs.push_back(*CompileField(field, 0, {}, layout));
  }
  return programs;
}

TEST(SlotLayoutTest, FieldsFollowEachOtherAligned) {
  const std::vector<FieldSpec> fields = {kImage, kLabel, kBoxes};
  std::vector<FieldProgram> programs = Programs(fields, Layout::kNchw);
  const v1::SlotLayout layout =
      *ComputeSlotLayout(fields, absl::MakeSpan(programs), 7);
  ASSERT_EQ(layout.fields_size(), 3);

  const v1::SlotField& image = layout.fields(0);
  EXPECT_EQ(image.name(), "image");
  EXPECT_EQ(image.dtype(), v1::DTYPE_UINT8);
  EXPECT_THAT(image.shape(), ElementsAre(7, 3, 32, 24));
  EXPECT_THAT(image.strides(), ElementsAre(2304, 768, 24, 1));
  EXPECT_EQ(image.offset_bytes(), 0);

  const v1::SlotField& label = layout.fields(1);
  EXPECT_EQ(label.dtype(), v1::DTYPE_INT64);
  EXPECT_THAT(label.shape(), ElementsAre(7));
  EXPECT_THAT(label.strides(), ElementsAre(1));
  EXPECT_EQ(label.offset_bytes(), 16128);  // 63 * 256, exactly

  const v1::SlotField& boxes = layout.fields(2);
  EXPECT_THAT(boxes.shape(), ElementsAre(7, 5, 4));
  EXPECT_THAT(boxes.strides(), ElementsAre(20, 4, 1));
  EXPECT_EQ(boxes.offset_bytes(), 16384);

  EXPECT_EQ(layout.indices_offset_bytes(), 17152);
  EXPECT_EQ(layout.slot_stride_bytes(), 17408);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(programs[i].offset_bytes, layout.fields(i).offset_bytes());
  }
}

TEST(SlotLayoutTest, NhwcShowsInTheStrides) {
  const std::vector<FieldSpec> fields = {kImage, kBoxes};
  std::vector<FieldProgram> programs = Programs(fields, Layout::kNhwc);
  const v1::SlotLayout layout =
      *ComputeSlotLayout(fields, absl::MakeSpan(programs), 2);
  EXPECT_THAT(layout.fields(0).shape(), ElementsAre(2, 3, 32, 24));
  EXPECT_THAT(layout.fields(0).strides(), ElementsAre(2304, 1, 72, 3));
  EXPECT_THAT(layout.fields(1).strides(), ElementsAre(20, 4, 1));
}

TEST(SlotLayoutTest, SizesAreThoseOfTheOutput) {
  const std::vector<FieldSpec> fields = {kImage};
  std::vector<FieldProgram> programs = {
      *CompileField(kImage, 0,
                    {Op("center_crop { height: 16 width: 8 }"),
                     Op("to_dtype { dtype: DTYPE_FLOAT16 }")},
                    Layout::kNchw)};
  const v1::SlotLayout layout =
      *ComputeSlotLayout(fields, absl::MakeSpan(programs), 10);
  EXPECT_EQ(layout.fields(0).dtype(), v1::DTYPE_FLOAT16);
  EXPECT_THAT(layout.fields(0).shape(), ElementsAre(10, 3, 16, 8));
  EXPECT_EQ(layout.indices_offset_bytes(), 10 * 3 * 16 * 8 * 2);
}

TEST(SlotLayoutTest, BatchSizeOutOfRange) {
  const std::vector<FieldSpec> fields = {kLabel};
  std::vector<FieldProgram> programs = Programs(fields, Layout::kNchw);
  for (int64_t batch_size : {int64_t{0}, int64_t{-1}, int64_t{1} << 31,
                             std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(ComputeSlotLayout(fields, absl::MakeSpan(programs), batch_size),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("batch_size is")));
  }
}

TEST(SlotLayoutTest, HugeSlotsAreRefusedWithoutOverflow) {
  constexpr int64_t kMaxBatch = (int64_t{1} << 31) - 1;
  const FieldSpec huge = {.name = "huge",
                          .dtype = Dtype::kFloat64,
                          .shape = {(int64_t{1} << 30) - 1}};
  std::vector<FieldSpec> fields = {huge};
  std::vector<FieldProgram> programs = Programs(fields, Layout::kNchw);
  EXPECT_THAT(ComputeSlotLayout(fields, absl::MakeSpan(programs), kMaxBatch),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("batch of 2147483647 samples")));
  // Each fits, the sum does not.
  fields = std::vector<FieldSpec>(kMaxFields, huge);
  programs = Programs(fields, Layout::kNchw);
  EXPECT_THAT(ComputeSlotLayout(fields, absl::MakeSpan(programs), 5000),
              StatusIs(absl::StatusCode::kResourceExhausted));
  // The sum fits to the byte, the indices do not.
  const FieldSpec flat = {
      .name = "flat", .dtype = Dtype::kUint8, .shape = {int64_t{1} << 24}};
  fields = {flat};
  programs = Programs(fields, Layout::kNchw);
  EXPECT_THAT(ComputeSlotLayout(fields, absl::MakeSpan(programs), 1 << 24),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(SlotLayoutTest, NoFieldsLeavesTheIndices) {
  const v1::SlotLayout layout = *ComputeSlotLayout({}, {}, 3);
  EXPECT_EQ(layout.fields_size(), 0);
  EXPECT_EQ(layout.indices_offset_bytes(), 0);
  EXPECT_EQ(layout.slot_stride_bytes(), 256);
}

}  // namespace
}  // namespace datasetd
