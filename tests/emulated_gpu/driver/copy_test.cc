// Copies and fills: CUDA Driver API, "API synchronization behavior".

#include <cuda.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

constexpr size_t kBytes = 4096;

CUdeviceptr DeviceMemory(unsigned char value) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(address, value, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  return address;
}

unsigned char* PinnedMemory(unsigned char value) {
  void* memory = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&memory, kBytes, 0), CUDA_SUCCESS);
  memset(memory, value, kBytes);
  return static_cast<unsigned char*>(memory);
}

CUstream HeldStream() {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
  return stream;
}

unsigned char Byte(CUdeviceptr address) {
  unsigned char byte = 0;
  EXPECT_EQ(cuMemcpyDtoH(&byte, address, 1), CUDA_SUCCESS);
  return byte;
}

void Advance(CUstream stream) {
  EXPECT_EQ(datasetd_emulated_gpu_advance(stream), CUDA_SUCCESS);
}

// "For transfers between pinned host memory and device memory, the function is
// fully asynchronous."
TEST(CopyTest, PinnedSourceIsReadLate) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(0);
    unsigned char* const pinned = PinnedMemory(1);
    const CUstream stream = HeldStream();
    ASSERT_EQ(cuMemcpyHtoDAsync(device, pinned, kBytes, stream), CUDA_SUCCESS);
    pinned[0] = 2;
    EXPECT_EQ(Byte(device), 0);
    Advance(stream);
    EXPECT_EQ(Byte(device), 2);
    EXPECT_EQ(Byte(device + 1), 1);
  });
}

// "the function will return once the pageable buffer has been copied to the
// staging memory".
TEST(CopyTest, PageableSourceIsReadAtOnce) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(0);
    std::vector<unsigned char> pageable(kBytes, 1);
    const CUstream stream = HeldStream();
    ASSERT_EQ(cuMemcpyHtoDAsync(device, pageable.data(), kBytes, stream),
              CUDA_SUCCESS);
    pageable.assign(kBytes, 2);
    EXPECT_EQ(Byte(device), 0);
    Advance(stream);
    EXPECT_EQ(Byte(device), 1);
  });
}

TEST(CopyTest, PinnedTargetIsWrittenLate) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(5);
    unsigned char* const pinned = PinnedMemory(1);
    const CUstream stream = HeldStream();
    ASSERT_EQ(cuMemcpyDtoHAsync(pinned, device, kBytes, stream), CUDA_SUCCESS);
    EXPECT_EQ(pinned[0], 1);
    Advance(stream);
    EXPECT_EQ(pinned[0], 5);
  });
}

// "For transfers from device memory to pageable host memory, the function will
// return only once the copy has completed."
TEST(CopyTest, PageableTargetIsWaitedFor) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(5);
    std::vector<unsigned char> pageable(kBytes);
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(pageable.data(), device, kBytes, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(pageable[kBytes - 1], 5);
  });
}

// "For transfers from pageable host memory to device memory, a stream sync is
// performed before the copy is initiated."
TEST(CopyTest, SynchronousCopyComesAfterBlockingStreams) {
  InProcess({}, [] {
    const CurrentContext context;
    const CUdeviceptr device = DeviceMemory(0);
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8Async(device, 1, kBytes, stream), CUDA_SUCCESS);
    static unsigned char byte = 2;
    std::atomic<bool> is_copied = false;
    std::thread copy([&] {
      EXPECT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyHtoD(device, &byte, 1), CUDA_SUCCESS);
      is_copied = true;
    });
    while (cuStreamQuery(nullptr) == CUDA_SUCCESS && !is_copied) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(is_copied);
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 0), CUDA_SUCCESS);
    copy.join();
    EXPECT_EQ(Byte(device), 2);
    EXPECT_EQ(Byte(device + 1), 1);
  });
}

// "For transfers from device memory to device memory, no host-side
// synchronization is performed."
TEST(CopyTest, CopyOnTheDeviceIsNotWaitedFor) {
  WithContext({}, [] {
    const CUdeviceptr from = DeviceMemory(1);
    const CUdeviceptr to = DeviceMemory(0);
    ASSERT_EQ(datasetd_emulated_gpu_hold(nullptr, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoD(to, from, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(datasetd_emulated_gpu_hold(nullptr, 0), CUDA_SUCCESS);
    EXPECT_EQ(Byte(to), 1);
  });
}

TEST(CopyTest, RangesAreChecked) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(0);
    std::vector<unsigned char> host(2 * kBytes);
    EXPECT_EQ(cuMemcpyHtoD(device, host.data(), kBytes + 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(device - 1, host.data(), 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH(host.data(), 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(host.data()),
                           host.data() + kBytes, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD(device, host.data(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(device, 0, kBytes + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD32(device + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD32(device, 0x01020304, kBytes / 4), CUDA_SUCCESS);
    EXPECT_EQ(Byte(device + 4), 4);
  });
}

// cuMemcpy infers what its addresses are (unified addressing), also of two
// devices that are no peers.
TEST(CopyTest, BetweenDevices) {
  InProcess({{"DEVICES", "2"}, {"PEERS", "0"}}, [] {
    const CurrentContext first(0);
    const CUdeviceptr from = DeviceMemory(3);
    const CurrentContext second(1);
    const CUdeviceptr to = DeviceMemory(0);
    EXPECT_EQ(cuMemcpy(to, from, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(Byte(to), 3);
    unsigned char byte = 0;
    EXPECT_EQ(cuMemcpy(reinterpret_cast<CUdeviceptr>(&byte), to, 1),
              CUDA_SUCCESS);
    EXPECT_EQ(byte, 3);
  });
}

// A source that is freed by then.
TEST(CopyTest, MemoryThatIsGoneIsAFault) {
  WithContext({}, [] {
    const CUdeviceptr device = DeviceMemory(0);
    std::vector<unsigned char> host(kBytes, 1);
    ASSERT_EQ(cuMemHostRegister(host.data(), kBytes, 0), CUDA_SUCCESS);
    const CUstream stream = HeldStream();
    ASSERT_EQ(cuMemcpyHtoDAsync(device, host.data(), kBytes, stream),
              CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostUnregister(host.data()), CUDA_SUCCESS);
    Advance(stream);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
