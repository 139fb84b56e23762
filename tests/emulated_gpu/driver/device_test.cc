// Devices, initialisation, versions and the end of a process.

#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/in_process.h"

extern "C" CUresult cuDeviceGetUuid_v2(CUuuid*, CUdevice);
#undef cuDeviceGetUuid
extern "C" CUresult cuDeviceGetUuid(CUuuid*, CUdevice);

namespace datasetd::emulated_driver {
namespace {

bool is_asked_at_end = false;

// Runs after the driver's own, which has no priority.
__attribute__((destructor(101))) void AskAtEnd() {
  int count = 0;
  if (is_asked_at_end && cuDeviceGetCount(&count) != CUDA_ERROR_DEINITIALIZED) {
    _exit(1);
  }
}

// cuda.h, CUDA_ERROR_NOT_INITIALIZED.
TEST(DeviceTest, NothingWorksBeforeInit) {
  InProcess({}, [] {
    int count = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    int version = 0;
    EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    EXPECT_EQ(version, 13000);
    EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
  });
}

// cuInit: CUDA_ERROR_NO_DEVICE.
TEST(DeviceTest, NoVisibleDevice) {
  InProcess({{"CUDA_VISIBLE_DEVICES", "-1"}},
            [] { EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE); });
}

TEST(DeviceTest, DevicesAreDescribed) {
  InProcess(
      {{"DEVICES", "2"},
       {"MEMORY_MIB", "128"},
       {"COMPUTE_CAPABILITY", "8.0,8.9"},
       {"NAME", "Test GPU"},
       {"ATTRIBUTES", "18=1"}},
      [] {
        ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
        CUdevice device = -1;
        EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
        ASSERT_EQ(cuDeviceGet(&device, 1), CUDA_SUCCESS);
        size_t total = 0;
        EXPECT_EQ(cuDeviceTotalMem(&total, device), CUDA_SUCCESS);
        EXPECT_EQ(total, size_t{128} << 20);
        char name[64];
        EXPECT_EQ(cuDeviceGetName(name, sizeof(name), device), CUDA_SUCCESS);
        EXPECT_STREQ(name, "Test GPU");
        int value = 0;
        EXPECT_EQ(
            cuDeviceGetAttribute(
                &value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
            CUDA_SUCCESS);
        EXPECT_EQ(value, 9);
        EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED,
                                       device),
                  CUDA_SUCCESS);
        EXPECT_EQ(value, 1);
        EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, device),
                  CUDA_ERROR_INVALID_VALUE);
      });
}

// cuDeviceGetUuid_v2: "If the device is in MIG mode, returns its MIG UUID".
TEST(DeviceTest, VersionsOfTheUuidDifferUnderMig) {
  InProcess({{"UUIDS",
              "MIG-11111111-1111-1111-1111-111111111111@"
              "GPU-22222222-2222-2222-2222-222222222222"}},
            [] {
              ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
              CUuuid uuid;
              EXPECT_EQ(cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
              EXPECT_EQ(uuid.bytes[0], 0x22);
              EXPECT_EQ(cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
              EXPECT_EQ(uuid.bytes[0], 0x11);
            });
}

// CUDA Programming Guide, "Programmatic error handling": a driver that was
// initialised is of no use in a child.
TEST(DeviceTest, ChildOfFork) {
  InProcess({}, [] {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    const pid_t child = fork();
    if (child == 0) {
      int count = 0;
      const bool is_refused =
          cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
          cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED;
      _exit(is_refused ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(DeviceTest, ChildOfForkBeforeInit) {
  InProcess({}, [] {
    int version = 0;
    ASSERT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    const pid_t child = fork();
    if (child == 0) _exit(cuInit(0) == CUDA_SUCCESS ? 0 : 1);
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

// cuda.h, CUDA_ERROR_DEINITIALIZED: "in the process of shutting down".
TEST(DeviceTest, EndOfTheProcess) {
  InProcess({}, [] {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    is_asked_at_end = true;
  });
}

TEST(DeviceTest, EntryPointsByName) {
  InProcess({}, [] {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_EQ(cuGetProcAddress("cuMemAlloc", &address, 12000,
                               CU_GET_PROC_ADDRESS_DEFAULT, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(address, reinterpret_cast<void*>(&cuMemAlloc));
    // "Symbol was found but version supplied was not sufficient."
    EXPECT_EQ(cuGetProcAddress("cuLibraryLoadData", &address, 11000,
                               CU_GET_PROC_ADDRESS_DEFAULT, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(address, nullptr);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &address, 13000,
                               CU_GET_PROC_ADDRESS_DEFAULT, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &address, 13000,
                               CU_GET_PROC_ADDRESS_DEFAULT, nullptr),
              CUDA_ERROR_NOT_FOUND);
  });
}

TEST(DeviceTest, OldDriverHasNoNewEntryPoints) {
  InProcess({{"DRIVER_VERSION", "11080"}}, [] {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_EQ(cuGetProcAddress("cuLibraryLoadData", &address, 13000,
                               CU_GET_PROC_ADDRESS_DEFAULT, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  });
}

TEST(DeviceTest, ErrorsHaveNames) {
  const char* text = nullptr;
  EXPECT_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(1000), &text),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace datasetd::emulated_driver
