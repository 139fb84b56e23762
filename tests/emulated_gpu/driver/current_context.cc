// Apart, since it links the driver, and not every test of processes does.

#include <cuda.h>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {

CurrentContext::CurrentContext(int device) : device_(device) {
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
}

CurrentContext::~CurrentContext() {
  EXPECT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

void WithContext(const Environment& environment,
                 const std::function<void()>& body) {
  InProcess(environment, [&body] {
    const CurrentContext context;
    body();
  });
}

}  // namespace datasetd::emulated_driver
