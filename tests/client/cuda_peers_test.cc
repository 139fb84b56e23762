// A slab that is mapped from a descriptor, used from another GPU of the job.

#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "client/device/cuda_driver.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/in_process.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::emulated_driver::InProcess;
using ::datasetd::testing::IsOk;

constexpr size_t kSlabBytes = size_t{2} << 20;

// An entry point of the emulated driver.
template <typename Function>
Function* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define DATASETD_CALL(function) \
  Find<decltype(function)>(DATASETD_NAME(function))
#define DATASETD_NAME(function) DATASETD_TEXT(function)
#define DATASETD_TEXT(function) #function

void MakeCurrent(CUdevice device) {
  CUcontext context = nullptr;
  ASSERT_EQ(DATASETD_CALL(cuDevicePrimaryCtxRetain)(&context, device),
            CUDA_SUCCESS);
  ASSERT_EQ(DATASETD_CALL(cuCtxSetCurrent)(context), CUDA_SUCCESS);
}

int ExportSlabOf(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  CUmemGenericAllocationHandle allocation = 0;
  EXPECT_EQ(DATASETD_CALL(cuMemCreate)(&allocation, kSlabBytes, &properties, 0),
            CUDA_SUCCESS);
  int fd = -1;
  EXPECT_EQ(DATASETD_CALL(cuMemExportToShareableHandle)(
                &fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  return fd;
}

std::string UuidOf(CUdevice device) {
  CUuuid uuid;
  EXPECT_EQ(DATASETD_CALL(cuDeviceGetUuid)(&uuid, device), CUDA_SUCCESS);
  return std::string(uuid.bytes, sizeof(uuid.bytes));
}

// Copies from a slab on device 0 while device 1 is current.
void CopyFromPeer(CUresult expected) {
  ASSERT_EQ(DATASETD_CALL(cuInit)(0), CUDA_SUCCESS);
  MakeCurrent(0);
  const int fd = ExportSlabOf(0);
  const auto driver = CudaDriver::Open(UuidOf(0), "cuda:0");
  ASSERT_THAT(driver, IsOk());
  const auto address = (*driver)->MapDescriptor(fd, kSlabBytes);
  ASSERT_THAT(address, IsOk());
  close(fd);
  const auto slab = reinterpret_cast<CUdeviceptr>(*address);
  ASSERT_EQ(DATASETD_CALL(cuMemcpyHtoD)(slab, "a sample", 9), CUDA_SUCCESS);
  // The copy may return earlier.
  ASSERT_EQ(DATASETD_CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
  MakeCurrent(1);
  char copy[9] = {};
  ASSERT_EQ(DATASETD_CALL(cuMemcpyDtoH)(copy, slab, sizeof(copy)), expected);
  if (expected == CUDA_SUCCESS) {
    EXPECT_STREQ(copy, "a sample");
  }
  MakeCurrent(0);
  EXPECT_THAT((*driver)->UnmapDescriptor(*address, kSlabBytes), IsOk());
}

TEST(CudaPeersTest, APeerMayUseTheSlab) {
  InProcess({{"DEVICES", "2"}}, [] { CopyFromPeer(CUDA_SUCCESS); });
}

TEST(CudaPeersTest, WithoutPeersTheSlabIsForItsOwnGpu) {
  InProcess({{"DEVICES", "2"}, {"PEERS", "0"}},
            [] { CopyFromPeer(CUDA_ERROR_INVALID_VALUE); });
}

TEST(CudaPeersTest, ARefusedPeerIsNoError) {
  // The second call is that for the peer.
  InProcess({{"DEVICES", "2"}, {"FAULTS", "cuMemSetAccess@2=801"}},
            [] { CopyFromPeer(CUDA_ERROR_INVALID_VALUE); });
}

}  // namespace
}  // namespace datasetd::client
