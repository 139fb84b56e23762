// Device memory of cuMemAlloc and pinned host memory.

#include <cuda.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

CUdeviceptr MustAlloc(size_t size_bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, size_bytes), CUDA_SUCCESS);
  return address;
}

size_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  return free_bytes;
}

// CUDA Programming Guide, "Device Memory Accesses": "aligned to at least 256
// bytes".
TEST(MemoryTest, SmallAllocationsShareABlock) {
  WithContext({{"MEMORY_MIB", "64"}}, [] {
    const CUdeviceptr first = MustAlloc(1);
    const CUdeviceptr second = MustAlloc(300);
    const CUdeviceptr third = MustAlloc(1);
    EXPECT_EQ(first % 256, 0u);
    EXPECT_EQ(second, first + 256);
    EXPECT_EQ(third, second + 512);
    EXPECT_EQ(FreeBytes(), 62 * kMiB);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT_EQ(cuMemGetAddressRange(&base, &size, second + 299), CUDA_SUCCESS);
    EXPECT_EQ(base, second);
    EXPECT_EQ(size, 300u);
    EXPECT_EQ(cuMemGetAddressRange(&base, &size, second + 300),
              CUDA_ERROR_NOT_FOUND);
    // The block goes with the last of them.
    EXPECT_EQ(cuMemFree(second), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(first), CUDA_SUCCESS);
    EXPECT_EQ(FreeBytes(), 62 * kMiB);
    EXPECT_EQ(cuMemFree(third), CUDA_SUCCESS);
    EXPECT_EQ(FreeBytes(), 64 * kMiB);
  });
}

TEST(MemoryTest, MemoryIsLimited) {
  WithContext({{"MEMORY_MIB", "64"}}, [] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc(&address, 65 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAlloc(&address, size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAlloc(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    // Blocks of 2 MiB.
    const CUdeviceptr large = MustAlloc(61 * kMiB);
    EXPECT_EQ(FreeBytes(), 2 * kMiB);
    MustAlloc(kMiB);
    EXPECT_EQ(cuMemAlloc(&address, 2 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemFree(large), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&address, 2 * kMiB), CUDA_SUCCESS);
  });
}

// cuMemGetInfo: on a device that several processes use, the free memory is what
// all of them left.
TEST(MemoryTest, ProcessesShareTheMemoryOfADevice) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/ledger";
  const Environment environment = {{"MEMORY_MIB", "64"},
                                   {"SHARED_MEMORY", path}};
  const Channel channel;
  Process first(environment, [&] {
    const CurrentContext context;
    MustAlloc(40 * kMiB);
    channel.Signal(0);
    for (;;) pause();
  });
  const Channel kill_channel;
  const Process second(environment, [&] {
    const CurrentContext context;
    channel.Await(1);
    EXPECT_EQ(FreeBytes(), 24 * kMiB);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, 26 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAlloc(&address, 24 * kMiB), CUDA_SUCCESS);
    kill_channel.Signal(1);
    kill_channel.Await(1);
    EXPECT_EQ(FreeBytes(), 40 * kMiB);
  });
  kill_channel.Await(0);
  first.Kill();
  kill_channel.Signal(0);
}

TEST(MemoryTest, FreeingTwiceOrInTheMiddle) {
  WithContext({}, [] {
    const CUdeviceptr address = MustAlloc(1000);
    EXPECT_EQ(cuMemFree(address + 256), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  });
}

// "The memory is not cleared."
TEST(MemoryTest, NewMemoryIsNotZero) {
  WithContext({}, [] {
    uint8_t byte = 0;
    EXPECT_EQ(cuMemcpyDtoH(&byte, MustAlloc(1), 1), CUDA_SUCCESS);
    EXPECT_NE(byte, 0);
  });
}

TEST(MemoryTest, AddressesAreNotUsedTwice) {
  WithContext({}, [] {
    const CUdeviceptr first = MustAlloc(4 * kMiB);
    ASSERT_EQ(cuMemFree(first), CUDA_SUCCESS);
    EXPECT_NE(MustAlloc(4 * kMiB), first);
    char byte;
    EXPECT_EQ(cuMemcpyDtoH(&byte, first, 1), CUDA_ERROR_INVALID_VALUE);
  });
}

// As with a GPU: the host cannot use device addresses.
TEST(MemoryTest, HostThatTouchesDeviceMemoryDies) {
  WithContext({}, [] {
    const CUdeviceptr address = MustAlloc(kMiB);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      *reinterpret_cast<volatile char*>(address) = 1;
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  });
}

// cuMemFree: "may perform implicit synchronization".
TEST(MemoryTest, FreeWaitsForTheDevice) {
  WithContext({{"MAX_DELAY_US", "100000"}}, [] {
    const CUdeviceptr address = MustAlloc(64);
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(cuMemsetD8Async(address, 1, 64, stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
  });
}

TEST(MemoryTest, PinnedMemoryIsTheHostsAndTheDevices) {
  WithContext({}, [] {
    void* pinned = nullptr;
    ASSERT_EQ(cuMemHostAlloc(&pinned, 5000, CU_MEMHOSTALLOC_DEVICEMAP),
              CUDA_SUCCESS);
    memset(pinned, 7, 5000);
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer(&device, pinned, 0), CUDA_SUCCESS);
    EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pinned));
    unsigned int type = 0;
    EXPECT_EQ(
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device),
        CUDA_SUCCESS);
    EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
    EXPECT_EQ(cuMemFree(device), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemHostAlloc(&pinned, size_t{1} << 50, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemHostAlloc(&pinned, 0, 0), CUDA_ERROR_INVALID_VALUE);
  });
}

// cuMemHostRegister.
TEST(MemoryTest, RegisteringHostMemory) {
  WithContext({}, [] {
    std::vector<char> memory(10000);
    EXPECT_EQ(cuMemHostUnregister(memory.data()),
              CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(cuMemHostRegister(memory.data(), memory.size(),
                                CU_MEMHOSTREGISTER_DEVICEMAP),
              CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostRegister(memory.data() + 100, 100, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CUdeviceptr device = 0;
    EXPECT_EQ(cuMemHostGetDevicePointer(&device, memory.data() + 5, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(memory.data() + 5));
    EXPECT_EQ(cuMemHostUnregister(memory.data() + 5),
              CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_SUCCESS);
    void* const nothing =
        mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(nothing, 4096);
    EXPECT_EQ(cuMemHostRegister(nothing, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  });
}

// As one, or not at all.
TEST(MemoryTest, CopiesOfMemoryThatIsRegisteredInPieces) {
  WithContext({}, [] {
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemAlloc(&device, 12288), CUDA_SUCCESS);
    alignas(4096) static char memory[12288];
    ASSERT_EQ(cuMemHostRegister(memory, 4096, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostRegister(memory + 4096, 4096, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(device, memory, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(device, memory + 4096, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(device, memory + 8192, 4096), CUDA_SUCCESS);
    for (char* const from : {memory, memory + 4096}) {
      EXPECT_EQ(cuMemcpyHtoD(device, from, 8192), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(cuMemcpyDtoH(from, device, 8192), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_EQ(cuMemHostUnregister(memory), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(device, memory, 8192), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemHostUnregister(memory + 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoD(device, memory, 8192), CUDA_SUCCESS);
  });
}

// "If any device visible to the application has a zero value for the device
// attribute, the device pointer [...] will not match the original host
// pointer".
TEST(MemoryTest, RegisteredMemoryAtAnAddressOfTheDevice) {
  WithContext({{"ATTRIBUTES", "91=0"}}, [] {
    alignas(8) static uint64_t words[600];
    ASSERT_EQ(cuMemHostRegister(words, sizeof(words), 0), CUDA_SUCCESS);
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer(&device, &words[2], 0), CUDA_SUCCESS);
    EXPECT_NE(device, reinterpret_cast<CUdeviceptr>(&words[2]));
    ASSERT_EQ(cuStreamWriteValue64(nullptr, device, 42, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(words[2], 42u);
    EXPECT_EQ(cuStreamWriteValue64(
                  nullptr, reinterpret_cast<CUdeviceptr>(&words[2]), 1, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemHostUnregister(words), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
