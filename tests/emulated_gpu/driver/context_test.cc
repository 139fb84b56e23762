// Primary contexts, what is current in a thread, and peers.

#include <cuda.h>

#include <thread>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

// cuda.h, CUDA_ERROR_INVALID_CONTEXT: "there is no context bound to the current
// thread".
TEST(ContextTest, CallsNeedACurrentContext) {
  InProcess({}, [] {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    const CurrentContext context;
    EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    // Current is what this thread pushed.
    std::thread([&] {
      EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuMemAlloc(&address, 1), CUDA_SUCCESS);
    }).join();
  });
}

TEST(ContextTest, StackOfAThread) {
  InProcess({{"DEVICES", "2"}}, [] {
    const CurrentContext first(0);
    {
      const CurrentContext second(1);
      CUdevice device = -1;
      EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
      EXPECT_EQ(device, 1);
    }
    CUdevice device = -1;
    EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, 0);
    CUcontext popped = nullptr;
    EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, first.get());
    EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxPushCurrent(reinterpret_cast<CUcontext>(0x1234)),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxPushCurrent(first.get()), CUDA_SUCCESS);
  });
}

// cuDevicePrimaryCtxRelease: reset "once the last reference to it is released";
// "does not pop the context from stack in any circumstances".
TEST(ContextTest, LastReleaseDestroysWhatIsInIt) {
  InProcess({}, [] {
    CUcontext context = nullptr;
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    void* pinned = nullptr;
    static char registered[4096];
    ASSERT_EQ(cuMemAlloc(&address, 1 << 20), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&pinned, 100, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostRegister(registered, sizeof(registered), 0),
              CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    const DatasetdEmulatedGpuCounts counts = datasetd_emulated_gpu_counts();
    EXPECT_EQ(counts.num_contexts, 0);
    EXPECT_EQ(counts.num_streams, 0);
    EXPECT_EQ(counts.num_events, 0);
    EXPECT_EQ(counts.num_allocations, 0);
    EXPECT_EQ(counts.num_pinned, 0);
    EXPECT_EQ(counts.num_current, 1);
    // A new one starts empty.
    CUcontext other = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 0), CUDA_SUCCESS);
    EXPECT_NE(other, context);
    EXPECT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    EXPECT_EQ(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes, total_bytes);
  });
}

TEST(ContextTest, HostFunctionsOfADestroyedContextAreNotCalled) {
  InProcess({}, [] {
    static bool is_called = false;
    {
      const CurrentContext context;
      CUstream stream = nullptr;
      ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
      ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
      ASSERT_EQ(cuLaunchHostFunc(
                    stream, [](void*) { is_called = true; }, nullptr),
                CUDA_SUCCESS);
    }
    EXPECT_FALSE(is_called);
  });
}

// cuCtxEnablePeerAccess.
TEST(ContextTest, PeersAreEnabledOneWay) {
  InProcess({{"DEVICES", "2"}}, [] {
    const CurrentContext first(0);
    const CurrentContext second(1);
    int can_access = 0;
    EXPECT_EQ(cuDeviceCanAccessPeer(&can_access, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(can_access, 1);
    EXPECT_EQ(cuDeviceCanAccessPeer(&can_access, 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(can_access, 0);
    EXPECT_EQ(cuCtxDisablePeerAccess(first.get()),
              CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    EXPECT_EQ(cuCtxEnablePeerAccess(second.get(), 0),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxEnablePeerAccess(first.get(), 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuCtxEnablePeerAccess(first.get(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxEnablePeerAccess(first.get(), 0),
              CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    EXPECT_EQ(cuCtxDisablePeerAccess(first.get()), CUDA_SUCCESS);
  });
}

TEST(ContextTest, DevicesWithoutPeers) {
  InProcess({{"DEVICES", "2"}, {"PEERS", "0"}}, [] {
    const CurrentContext first(0);
    const CurrentContext second(1);
    int can_access = 1;
    EXPECT_EQ(cuDeviceCanAccessPeer(&can_access, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(can_access, 0);
    EXPECT_EQ(cuCtxEnablePeerAccess(first.get(), 0),
              CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
