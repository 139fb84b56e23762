#include "client/feed/slot_layout.h"

#include <functional>
#include <limits>
#include <string>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSlabBytes = 4096;

// Two slots of [4, 3] float32 and the indices.
v1::SlotLayout GoodLayout() {
  v1::SlotLayout layout;
  layout.set_num_slots(2);
  layout.set_slot_stride_bytes(128);
  v1::SlotField* const field = layout.add_fields();
  field->set_name("x");
  field->set_dtype(v1::DTYPE_FLOAT32);
  field->add_shape(4);
  field->add_shape(3);
  field->add_strides(3);
  field->add_strides(1);
  layout.set_indices_offset_bytes(96);
  return layout;
}

TEST(SlotLayoutTest, GoodLayout) {
  const auto layout = SlotLayout::Create(GoodLayout(), kSlabBytes);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->batch_size(), 4);
  EXPECT_EQ(layout->num_fields(), 1);
  EXPECT_EQ(layout->fields()[1].name, "indices");
  EXPECT_EQ(layout->fields()[1].offset_bytes, 96u);
}

TEST(SlotLayoutTest, Groups) {
  const auto layout = SlotLayout::Create(GoodLayout(), kSlabBytes, 2);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->batch_size(), 4);
  const FieldLayout& field = layout->fields()[0];
  EXPECT_EQ(field.num_dimensions, 3);
  EXPECT_THAT(absl::MakeSpan(field.shape).first(3), ElementsAre(2, 2, 3));
  EXPECT_THAT(absl::MakeSpan(field.strides).first(3), ElementsAre(6, 3, 1));
  EXPECT_EQ(layout->fields()[1].shape[1], 2);
  EXPECT_THAT(SlotLayout::Create(GoodLayout(), kSlabBytes, 3),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("groups of 3")));
  v1::SlotLayout deep = GoodLayout();
  for (int i = 2; i < kMaxDimensions; ++i) {
    deep.mutable_fields(0)->add_shape(1);
    deep.mutable_fields(0)->add_strides(1);
  }
  EXPECT_THAT(SlotLayout::Create(deep, kSlabBytes, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("none is left for groups")));
}

struct BadCase {
  const char* name;
  std::function<void(v1::SlotLayout*)> damage;
  const char* message;
};

class SlotLayoutBadTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(SlotLayoutBadTest, IsRefused) {
  v1::SlotLayout layout = GoodLayout();
  GetParam().damage(&layout);
  EXPECT_THAT(
      SlotLayout::Create(layout, kSlabBytes),
      StatusIs(absl::StatusCode::kInternal, HasSubstr(GetParam().message)));
}

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    All, SlotLayoutBadTest,
    ::testing::Values(
        BadCase{"NoSlots", [](auto* l) { l->set_num_slots(0); }, "0 slots"},
        BadCase{"TooManySlots", [](auto* l) { l->set_num_slots(65); },
                "65 slots"},
        BadCase{"SlabTooSmall", [](auto* l) { l->set_slot_stride_bytes(2056); },
                "4096"},
        BadCase{"OddSlots", [](auto* l) { l->set_slot_stride_bytes(130); },
                "130"},
        BadCase{"NoField", [](auto* l) { l->clear_fields(); }, "no field"},
        BadCase{"UnknownDtype",
                [](auto* l) {
                  l->mutable_fields(0)->set_dtype(static_cast<v1::Dtype>(99));
                },
                "dtype 99"},
        BadCase{"NoShape",
                [](auto* l) {
                  l->mutable_fields(0)->clear_shape();
                  l->mutable_fields(0)->clear_strides();
                },
                "0 extents"},
        BadCase{"FewerStrides",
                [](auto* l) {
                  l->mutable_fields(0)->mutable_strides()->RemoveLast();
                },
                "1 strides"},
        BadCase{"NegativeStride",
                [](auto* l) { l->mutable_fields(0)->set_strides(0, -3); },
                "stride below 0"},
        BadCase{"ZeroExtent",
                [](auto* l) { l->mutable_fields(0)->set_shape(1, 0); },
                "extent below 1"},
        BadCase{"HugeExtent",
                [](auto* l) { l->mutable_fields(0)->set_shape(0, kHuge); },
                "does not fit"},
        BadCase{"HugeStride",
                [](auto* l) { l->mutable_fields(0)->set_strides(1, kHuge); },
                "does not fit"},
        // All elements at one place, which would be copied as 4 * 1000.
        BadCase{"OverlappingElements",
                [](auto* l) {
                  l->mutable_fields(0)->set_shape(1, 1000);
                  l->mutable_fields(0)->set_strides(0, 0);
                  l->mutable_fields(0)->set_strides(1, 0);
                },
                "elements that overlap: they span 4 bytes"},
        BadCase{"OverlappingRows",
                [](auto* l) { l->mutable_fields(0)->set_strides(0, 2); },
                "elements that overlap"},
        BadCase{"OverflowOfElements",
                [](auto* l) {
                  l->mutable_fields(0)->set_shape(1, kHuge);
                  l->mutable_fields(0)->set_strides(1, 0);
                },
                "elements that overlap"},
        BadCase{"BeyondTheSlot",
                [](auto* l) { l->mutable_fields(0)->set_offset_bytes(84); },
                "does not fit"},
        BadCase{"Misaligned",
                [](auto* l) { l->mutable_fields(0)->set_offset_bytes(2); },
                "does not fit"},
        BadCase{"IndicesBeyondTheSlot",
                [](auto* l) { l->set_indices_offset_bytes(104); }, "'indices'"},
        BadCase{"OtherRows",
                [](auto* l) {
                  *l->add_fields() = l->fields(0);
                  l->mutable_fields(1)->set_shape(0, 2);
                },
                "2 rows"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace datasetd::client
