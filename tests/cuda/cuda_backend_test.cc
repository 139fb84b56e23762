#include "cuda/device/cuda_backend.h"

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/cuda/cuda_importer.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Cuda, BackendConformanceTest,
                         ::testing::Values(BackendUnderTest{
                             .name = "Device0",
                             .create = [] { return CreateCudaBackend({}); }}),
                         NameOfBackend);

// Skips without a device as the suite does.
class CudaBackendTest : public BackendConformanceTest {};

TEST_P(CudaBackendTest, DescribesAGpu) {
  EXPECT_EQ(backend_->info().name, "cuda:0");
  EXPECT_FALSE(backend_->info().is_host);
  EXPECT_TRUE(backend_->needs_polling());
  EXPECT_EQ(backend_->max_batches_per_launch(1), kMaxBatchesPerLaunch);
}

TEST_P(CudaBackendTest, OrdinalOutOfRangeIsInvalid) {
  EXPECT_THAT(
      CreateCudaBackend({.ordinal = -1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cuda:-1")));
  EXPECT_THAT(
      CreateCudaBackend({.ordinal = 1000}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cuda:1000")));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaBackendTest,
                         ::testing::Values(BackendUnderTest{
                             .name = "Device0",
                             .create = [] { return CreateCudaBackend({}); }}),
                         NameOfBackend);

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  return datasetd::testing::ConformanceMain(argc, argv,
                                            datasetd::testing::ImportCuda);
}
