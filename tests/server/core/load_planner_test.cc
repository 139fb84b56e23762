#include "server/core/load_planner.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

SourceInfo SourceOf(int num_fields) {
  SourceInfo source;
  source.num_samples = 10;
  for (int f = 0; f < num_fields; ++f) {
    source.fields.push_back({.name = absl::StrCat("f", f),
                             .shape = {4, 4, 1},
                             .is_image = true});
  }
  return source;
}

// More fields than a feed carries, which ended the daemon.
TEST(LoadPlannerTest, EveryFieldMayHavePretransforms) {
  const int last = kMaxDatasetFields - 1;
  const DatasetSpec spec = {
      .name = "a",
      .pretransforms = {
          {absl::StrCat("f", last), {CenterCropSpec{.height = 2, .width = 2}}},
          {"f8", {CenterCropSpec{.height = 2, .width = 3}}}}};
  const auto plan = PlanSource(spec, SourceOf(kMaxDatasetFields), 1);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->fields[8].resident.shape, (std::vector<int64_t>{2, 3, 1}));
  EXPECT_EQ(plan->fields[last].resident.shape,
            (std::vector<int64_t>{2, 2, 1}));
}

TEST(LoadPlannerTest, ADatasetHasSoManyFieldsAtMost) {
  EXPECT_THAT(PlanSource({.name = "a"}, SourceOf(kMaxDatasetFields + 1), 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the source has 257 fields; a dataset has at "
                                 "most 256")));
}

}  // namespace
}  // namespace datasetd
