#include "cuda/device/status.h"

#include <cuda.h>

#include "cuda/backend/device_failure.h"
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
using ::testing::StartsWith;

CUresult Give(CUresult error) { return error; }

absl::Status Call(CUresult error) {
  DATASETD_CUDA_RETURN_IF_ERROR(Give(error));
  return absl::OkStatus();
}

absl::Status Take(CUresult error, size_t size_bytes) {
  DATASETD_CUDA_RETURN_IF_ERROR(Give(error), size_bytes);
  return absl::OkStatus();
}

TEST(StatusTest, SuccessIsOk) { EXPECT_THAT(Call(CUDA_SUCCESS), IsOk()); }

// Without a driver there are no names.
TEST(StatusTest, NamesFunctionErrorDeviceAndBytes) {
  EXPECT_THAT(Take(CUDA_ERROR_OUT_OF_MEMORY, 12345),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(StartsWith("Give: "), HasSubstr("CUDA error 2"),
                             HasSubstr("device"), HasSubstr("12345 bytes"))));
  EXPECT_THAT(
      Call(CUDA_ERROR_ILLEGAL_ADDRESS),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("CUDA error 700"), Not(HasSubstr("bytes")))));
}

TEST(StatusTest, NamesTheFunctionHoweverItIsReached) {
  for (const char* const call :
       {"cuEventQuery(event.get())", "api.cuEventQuery(event)",
        "api->cuEventQuery(x().y)", "context_.api().cuEventQuery(event.get())",
        "LoadedDriverApi()->cuEventQuery(event)", "cuEventQuery"}) {
    EXPECT_THAT(
        CudaStatus(CUDA_ERROR_INVALID_VALUE, call),
        StatusIs(absl::StatusCode::kInternal, StartsWith("cuEventQuery: ")))
        << call;
  }
}

TEST(StatusTest, CodesTellWhoCanHelp) {
  EXPECT_THAT(Call(CUDA_ERROR_NO_DEVICE),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(CUDA_ERROR_DEVICE_UNAVAILABLE),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Call(CUDA_ERROR_NOT_SUPPORTED),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(Call(CUDA_ERROR_INVALID_VALUE),
              StatusIs(absl::StatusCode::kInternal));
}

TEST(StatusTest, ErrorsThatEndAContextAreDeviceFailures) {
  for (const CUresult error :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED}) {
    EXPECT_TRUE(IsDeviceFailure(Call(error))) << error;
  }
  for (const CUresult error :
       {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_UNKNOWN}) {
    EXPECT_FALSE(IsDeviceFailure(Call(error))) << error;
  }
}

TEST(StatusTest, DestructorsLogAllButShutdown) {
  ::testing::internal::CaptureStderr();
  DATASETD_CUDA_LOG_IF_ERROR(Give(CUDA_SUCCESS));
  DATASETD_CUDA_LOG_IF_ERROR(Give(CUDA_ERROR_CONTEXT_IS_DESTROYED));
  DATASETD_CUDA_LOG_IF_ERROR(Give(CUDA_ERROR_DEINITIALIZED));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  DATASETD_CUDA_LOG_IF_ERROR(Give(CUDA_ERROR_INVALID_VALUE));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("Give: CUDA error 1"));
}

}  // namespace
}  // namespace datasetd
