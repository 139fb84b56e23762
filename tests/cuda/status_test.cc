#include "cuda/status.h"

#include <cuda_runtime_api.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

cudaError_t Give(cudaError_t error) { return error; }

absl::Status Call(cudaError_t error) {
  DATASETD_CUDA_RETURN_IF_ERROR(Give(error));
  return absl::OkStatus();
}

absl::Status Take(cudaError_t error, size_t size_bytes) {
  DATASETD_CUDA_RETURN_IF_ERROR(Give(error), size_bytes);
  return absl::OkStatus();
}

absl::Status CallDriver(CUresult error) {
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(error, 64);
  return absl::OkStatus();
}

TEST(StatusTest, SuccessIsOk) {
  EXPECT_THAT(Call(cudaSuccess), IsOk());
  EXPECT_THAT(CallDriver(CUDA_SUCCESS), IsOk());
}

TEST(StatusTest, NamesCallErrorDeviceAndBytes) {
  EXPECT_THAT(Take(cudaErrorMemoryAllocation, 12345),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("Give(error)"),
                             HasSubstr("cudaErrorMemoryAllocation"),
                             HasSubstr("out of memory"), HasSubstr("device"),
                             HasSubstr("12345 bytes"))));
  EXPECT_THAT(Call(cudaErrorIllegalAddress),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("cudaErrorIllegalAddress"),
                             Not(HasSubstr("bytes")))));
}

TEST(StatusTest, CodesTellWhoCanHelp) {
  EXPECT_THAT(Call(cudaErrorNoDevice),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(cudaErrorInsufficientDriver),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(cudaErrorDevicesUnavailable),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(cudaErrorNotSupported),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(Call(cudaErrorInvalidValue),
              StatusIs(absl::StatusCode::kInternal));
}

TEST(StatusTest, DriverErrorsAreTranslated) {
  EXPECT_THAT(CallDriver(CUDA_ERROR_OUT_OF_MEMORY),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("64 bytes")));
  EXPECT_THAT(CallDriver(CUDA_ERROR_NOT_SUPPORTED),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(CallDriver(CUDA_ERROR_ILLEGAL_ADDRESS),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("cudaErrorIllegalAddress")));
}

TEST(StatusTest, DestructorsLogAllButShutdown) {
  ::testing::internal::CaptureStderr();
  DATASETD_CUDA_LOG_IF_ERROR(Give(cudaSuccess));
  DATASETD_CUDA_LOG_IF_ERROR(Give(cudaErrorCudartUnloading));
  DATASETD_CUDA_DRIVER_LOG_IF_ERROR(CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  DATASETD_CUDA_LOG_IF_ERROR(Give(cudaErrorInvalidValue));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("Give(cudaErrorInvalidValue)"));
}

}  // namespace
}  // namespace datasetd
