// Errors on order, and the log.

#include <cuda.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/error_plan.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FaultTest, PlansAreParsed) {
  ErrorPlan plan;
  ASSERT_TRUE(plan.Set("a@2=801,b@1+=2,a@3=700"));
  EXPECT_EQ(plan.Next("a"), CUDA_SUCCESS);
  EXPECT_EQ(plan.Next("a"), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(plan.Next("a"), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(plan.Next("a"), CUDA_SUCCESS);
  EXPECT_EQ(plan.Next("b"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(plan.Next("b"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(plan.Next("c"), CUDA_SUCCESS);
  ASSERT_TRUE(plan.Set("1/a@2=700,a@4=801"));
  EXPECT_EQ(plan.Next("a", 1), CUDA_SUCCESS);
  EXPECT_EQ(plan.Next("a", 0), CUDA_SUCCESS);
  EXPECT_EQ(plan.Next("a", 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(plan.Next("a", 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(plan.Next("a", 1), CUDA_SUCCESS);
  ASSERT_TRUE(plan.Set(""));
  EXPECT_EQ(plan.Next("b"), CUDA_SUCCESS);
  for (const char* const bad : {"a", "a@=1", "a@0=1", "a@1=x", "a@1=1x"}) {
    EXPECT_FALSE(plan.Set(bad)) << bad;
  }
}

TEST(FaultTest, CallsFailOnOrder) {
  WithContext({{"FAULTS", "cuMemAlloc_v2@2=2"}}, [] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_SUCCESS);
  });
}

// cuda.h, CUDA_ERROR_ECC_UNCORRECTABLE and others: see IsSticky.
TEST(FaultTest, StickyErrorsStay) {
  WithContext({{"FAULTS", "cuMemAlloc_v2@1=214"}}, [] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ECC_UNCORRECTABLE);
  });
}

TEST(FaultTest, WorkFailsWhenItsStreamGetsThere) {
  WithContext({{"FAULTS", "set@2=719"}}, [] {
    CUdeviceptr address = 0;
    ASSERT_EQ(cuMemAlloc(&address, 8), CUDA_SUCCESS);
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
    static bool is_called = false;
    EXPECT_EQ(cuMemsetD8Async(address, 1, 8, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8Async(address, 2, 8, stream), CUDA_SUCCESS);
    // "will not be called in the event of an error in the CUDA context".
    EXPECT_EQ(cuLaunchHostFunc(
                  stream, [](void*) { is_called = true; }, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_FALSE(is_called);
  });
}

TEST(FaultTest, CallsAndFindingsAreLogged) {
  const std::string path =
      std::string(getenv("TEST_TMPDIR")) + "/emulated_gpu.log";
  WithContext({{"LOG", path}, {"FAULTS", "set@1=716"}}, [] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc(&address, 123), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8Async(address, 0, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
  });
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(
      text.str(),
      AllOf(HasSubstr(" cuMemAlloc_v2 = 1 CUDA_ERROR_INVALID_VALUE\n"),
            HasSubstr(" cuMemAlloc_v2 = 0 CUDA_SUCCESS: 123 bytes\n"),
            HasSubstr(" FAULT 716 CUDA_ERROR_MISALIGNED_ADDRESS: set on "
                      "device 0: injected\n")));
}

}  // namespace
}  // namespace datasetd::emulated_driver
