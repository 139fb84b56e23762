#include "server/order/subset.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const SubsetTable::Options kOptions = {
    .size = 4, .dataset_size = 10, .dataset = "d"};

TEST(SubsetTableTest, SamplesKeepTheirOrder) {
  SubsetTable table(kOptions);
  ASSERT_THAT(table.Append({9, 0, 4}), IsOk());
  ASSERT_THAT(table.Append({3}), IsOk());
  EXPECT_THAT(table.samples(), ElementsAre(9, 0, 4, 3));
}

TEST(SubsetTableTest, SamplesAreOfTheDataset) {
  for (const int64_t index : {int64_t{-1}, int64_t{10}, INT64_MAX, INT64_MIN}) {
    SubsetTable table(kOptions);
    EXPECT_THAT(table.Append({1, index}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         AllOf(HasSubstr("subset[1]: "),
                               HasSubstr("10 samples, counted from 0"))));
  }
}

TEST(SubsetTableTest, NoSampleComesTwice) {
  SubsetTable table(kOptions);
  ASSERT_THAT(table.Append({4, 1}), IsOk());
  EXPECT_THAT(table.Append({4}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("subset[2]: 4 is there twice")));
}

}  // namespace
}  // namespace datasetd
