#include "server/load/load_plan.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::Op;
using ::datasetd::testing::SetPretransforms;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<LoadPlan> Plan(const v1::DatasetSpec& spec,
                              const SourceInfo& source,
                              const LoadLimits& limits = {}) {
  return PlanSource(CheckRequest(spec).value(), source, /*own_sizes=*/{},
                    limits);
}

SourceInfo SourceOf(int num_fields) {
  SourceInfo source;
  source.num_samples = 10;
  for (int f = 0; f < num_fields; ++f) {
    source.fields.push_back(
        {.name = absl::StrCat("f", f), .shape = {4, 4, 1}, .is_image = true});
  }
  return source;
}

// More fields than a feed carries, which ended the daemon.
TEST(LoadPlanTest, EveryFieldMayHavePretransforms) {
  const int last = kMaxDatasetFields - 1;
  v1::DatasetSpec spec = NamedSpec("a");
  SetPretransforms(spec, absl::StrCat("f", last),
                   {Op("center_crop { height: 2 width: 2 }")});
  SetPretransforms(spec, "f8", {Op("center_crop { height: 2 width: 3 }")});
  const auto plan = Plan(spec, SourceOf(kMaxDatasetFields));
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->fields[8].resident.shape, (std::vector<int64_t>{2, 3, 1}));
  EXPECT_EQ(plan->fields[last].resident.shape, (std::vector<int64_t>{2, 2, 1}));
}

TEST(LoadPlanTest, ADatasetHasSoManyFieldsAtMost) {
  EXPECT_THAT(Plan(NamedSpec("a"), SourceOf(kMaxDatasetFields + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the source has 257 fields; a dataset has at "
                                 "most 256")));
}

SourceInfo OneField(int64_t num_samples, std::vector<int64_t> shape) {
  SourceInfo source;
  source.num_samples = num_samples;
  source.fields = {
      {.name = "image", .shape = std::move(shape), .is_image = true}};
  return source;
}

// The shape of ragged images is not known before they are here.
TEST(LoadPlanTest, SamplesThatAreStillToComeAreNotTransformed) {
  SourceInfo source = SourceOf(2);
  source.is_encoded = source.is_awaited = true;
  source.fields[0].is_ragged = true;
  source.fields[0].shape = {1, 1, 1};
  v1::DatasetSpec spec = NamedSpec("a");
  SetPretransforms(spec, "f0", {Op("resize { size { height: 2 width: 3 } }")});
  SetPretransforms(spec, "f1", {Op("center_crop { height: 2 width: 2 }")});
  const auto early = Plan(spec, source);
  ASSERT_THAT(early, IsOk());
  EXPECT_TRUE(early->fields[0].needs_sizes);
  EXPECT_FALSE(early->fields[0].is_transformed);
  EXPECT_EQ(early->fields[1].resident.shape, (std::vector<int64_t>{2, 2, 1}));
  source.is_awaited = false;
  const auto plan = Plan(spec, source);
  ASSERT_THAT(plan, IsOk());
  EXPECT_FALSE(plan->needs_sizes());
  EXPECT_EQ(plan->fields[0].resident.shape, (std::vector<int64_t>{2, 3, 1}));
}

// A chunk is read into host memory as it is.
TEST(LoadPlanTest, ASampleMustFitIntoItsMemory) {
  LoadLimits limits;
  limits.max_sample_bytes = int64_t{300} << 20;
  const v1::DatasetSpec spec = NamedSpec("a");
  EXPECT_THAT(Plan(spec, OneField(3, {300, 1 << 20, 1}), limits), IsOk());
  EXPECT_THAT(
      Plan(spec, OneField(3, {301, 1 << 20, 1}), limits),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("a sample takes 315621376 bytes"),
                     HasSubstr("max_sample_memory_mib"), HasSubstr("300"))));
  EXPECT_THAT(Plan(spec, OneField(2, {int64_t{1} << 40, 1 << 23, 3}), limits),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// The limit holds for a sample as read and as transformed: each has a buffer.
TEST(LoadPlanTest, BothFormsOfASampleMustFitIntoItsMemory) {
  LoadLimits limits;
  limits.max_sample_bytes = int64_t{300} << 20;
  const auto plan = [&](int64_t height, const std::string& op) {
    v1::DatasetSpec spec = NamedSpec("a");
    SetPretransforms(spec, "image", {Op(op)});
    return Plan(spec, OneField(1000, {height, 1 << 20, 1}), limits);
  };
  const auto small = plan(200, "crop { height: 3 width: 3 }");
  ASSERT_THAT(small, IsOk());
  EXPECT_EQ(small->chunk_samples, 1);
  EXPECT_EQ(small->num_input_buffers, 2);
  EXPECT_EQ(small->input_bytes, 200 << 20);
  EXPECT_EQ(small->staging_bytes, 256);
  EXPECT_LE(small->buffer_bytes(), MaxLoadBufferBytes(limits.max_sample_bytes));
  EXPECT_THAT(plan(301, "crop { height: 3 width: 3 }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a sample takes 315621376 bytes"),
                             HasSubstr("max_sample_memory_mib"))));
  EXPECT_THAT(plan(100, "to_dtype { dtype: DTYPE_FLOAT32 }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a sample takes 419430400 bytes")));
}

}  // namespace
}  // namespace datasetd
