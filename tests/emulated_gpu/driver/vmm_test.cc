// Virtual memory management, and descriptors between processes.

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

constexpr size_t kBytes = size_t{2} << 20;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp PropertiesOf(int device, bool is_exportable = true) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes =
      is_exportable ? kDescriptor : CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

CUmemGenericAllocationHandle Create(size_t size_bytes = kBytes,
                                    int device = 0) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = PropertiesOf(device);
  EXPECT_EQ(cuMemCreate(&handle, size_bytes, &properties, 0), CUDA_SUCCESS);
  return handle;
}

CUdeviceptr Map(CUmemGenericAllocationHandle handle,
                size_t size_bytes = kBytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, size_bytes, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(address, size_bytes, 0, handle, 0), CUDA_SUCCESS);
  return address;
}

CUresult SetAccess(CUdeviceptr address, int device,
                   CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                   size_t size_bytes = kBytes) {
  CUmemAccessDesc access = {};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  access.flags = flags;
  return cuMemSetAccess(address, size_bytes, &access, 1);
}

int Export(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0),
            CUDA_SUCCESS);
  return fd;
}

CUresult Import(CUmemGenericAllocationHandle* handle, int fd) {
  return cuMemImportFromShareableHandle(
      handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor);
}

CUresult ReadByte(CUdeviceptr address, uint8_t* byte) {
  return cuMemcpyDtoH(byte, address, 1);
}

size_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  return free_bytes;
}

// Nothing says what memory of cuMemCreate holds.
TEST(VmmTest, NewMemoryIsNotZero) {
  WithContext({}, [] {
    const CUdeviceptr address = Map(Create());
    ASSERT_EQ(SetAccess(address, 0), CUDA_SUCCESS);
    for (const size_t offset : {size_t{0}, kBytes - 1}) {
      uint8_t byte = 0;
      EXPECT_EQ(ReadByte(address + offset, &byte), CUDA_SUCCESS);
      EXPECT_NE(byte, 0);
    }
  });
}

// cuMemCreate: a multiple of cuMemGetAllocationGranularity.
TEST(VmmTest, SizesAreGranular) {
  WithContext({{"MEMORY_MIB", "64"}}, [] {
    const CUmemAllocationProp properties = PropertiesOf(0);
    size_t granularity = 0;
    EXPECT_EQ(cuMemGetAllocationGranularity(&granularity, &properties,
                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_SUCCESS);
    EXPECT_EQ(granularity, kBytes);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, kBytes + 4096, &properties, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 0, &properties, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 66 << 20, &properties, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemCreate(&handle, size_t{1} << 50, &properties, 0),
              CUDA_ERROR_OUT_OF_MEMORY);
    const CUmemAllocationProp elsewhere = PropertiesOf(1);
    EXPECT_EQ(cuMemCreate(&handle, kBytes, &elsewhere, 0),
              CUDA_ERROR_INVALID_DEVICE);
  });
}

TEST(VmmTest, MappingsStayInTheirReservation) {
  WithContext({}, [] {
    const CUmemGenericAllocationHandle handle = Create();
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, 100, 0, 0, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressReserve(&address, kBytes, 3, 0, 0),
              CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemAddressReserve(&address, kBytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(address + kBytes, kBytes, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(address, 2 * kBytes, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMap(address, kBytes, kBytes, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(address, kBytes), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemMap(address, kBytes, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(address, kBytes, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressFree(address, kBytes), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(address, kBytes / 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemUnmap(address, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(address, kBytes / 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(address, kBytes), CUDA_ERROR_INVALID_VALUE);
  });
}

// "calling cuMemMap does not make the address accessible".
TEST(VmmTest, MappedIsNotAccessible) {
  WithContext({}, [] {
    const CUdeviceptr address = Map(Create());
    uint8_t byte = 0;
    EXPECT_EQ(ReadByte(address, &byte), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(SetAccess(address, 7), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(SetAccess(address, 0, CU_MEM_ACCESS_FLAGS_PROT_READ),
              CUDA_SUCCESS);
    EXPECT_EQ(ReadByte(address, &byte), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(SetAccess(address, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(address, 1, 1), CUDA_SUCCESS);
  });
}

// "set the access flags for each location": one device's is not another's.
TEST(VmmTest, AccessIsOfOneDevice) {
  InProcess({{"DEVICES", "2"}}, [] {
    const CurrentContext first(0);
    const CUdeviceptr address = Map(Create());
    ASSERT_EQ(SetAccess(address, 0), CUDA_SUCCESS);
    uint8_t byte = 0;
    EXPECT_EQ(ReadByte(address, &byte), CUDA_SUCCESS);
    {
      const CurrentContext second(1);
      EXPECT_EQ(ReadByte(address, &byte), CUDA_ERROR_INVALID_VALUE);
      ASSERT_EQ(SetAccess(address, 1), CUDA_SUCCESS);
      EXPECT_EQ(ReadByte(address, &byte), CUDA_SUCCESS);
    }
  });
}

// "once all shareable handles are closed and the allocation is released", here
// without handles elsewhere.
TEST(VmmTest, MappingKeepsTheMemory) {
  WithContext({{"MEMORY_MIB", "64"}}, [] {
    const size_t free_bytes = FreeBytes();
    const CUmemGenericAllocationHandle handle = Create();
    const CUdeviceptr address = Map(handle);
    ASSERT_EQ(SetAccess(address, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(FreeBytes(), free_bytes - kBytes);
    EXPECT_EQ(cuMemsetD8(address, 1, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(address, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(FreeBytes(), free_bytes);
    EXPECT_EQ(cuMemMap(address, kBytes, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(VmmTest, DescriptorMustHaveBeenAskedFor) {
  WithContext({}, [] {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = PropertiesOf(0, false);
    ASSERT_EQ(cuMemCreate(&handle, kBytes, &properties, 0), CUDA_SUCCESS);
    int fd = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, kDescriptor, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Import(&handle, memfd_create("other", 0)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Import(&handle, 999), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(VmmTest, DeviceWithoutIt) {
  WithContext({{"ATTRIBUTES", "102=0"}}, [] {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = PropertiesOf(0);
    EXPECT_EQ(cuMemCreate(&handle, kBytes, &properties, 0),
              CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST(VmmTest, ImporterKeepsTheMemoryOfAKilledExporter) {
  const Channel channel;
  Process exporter({}, [&] {
    const CurrentContext context;
    const CUmemGenericAllocationHandle handle = Create(2 * kBytes);
    const CUdeviceptr address = Map(handle, 2 * kBytes);
    ASSERT_EQ(
        SetAccess(address, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2 * kBytes),
        CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(address, 42, 2 * kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    channel.SendDescriptor(0, Export(handle));
    for (;;) pause();
  });
  const Channel kill_channel;
  const Process importer({}, [&] {
    const CurrentContext context;
    CUmemGenericAllocationHandle handle = 0;
    const int fd = channel.ReceiveDescriptor(1);
    ASSERT_EQ(Import(&handle, fd), CUDA_SUCCESS);
    close(fd);
    CUdeviceptr address = 0;
    // Another size than the exporter's.
    ASSERT_EQ(cuMemAddressReserve(&address, 4 * kBytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(address, 3 * kBytes, 0, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(cuMemMap(address, 2 * kBytes, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(
        SetAccess(address, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2 * kBytes),
        CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    kill_channel.Signal(1);
    kill_channel.Await(1);
    uint8_t byte = 0;
    EXPECT_EQ(ReadByte(address + 2 * kBytes - 1, &byte), CUDA_SUCCESS);
    EXPECT_EQ(byte, 42);
  });
  kill_channel.Await(0);
  exporter.Kill();
  kill_channel.Signal(0);
}

TEST(VmmTest, DescriptorOfADeviceThatIsNotVisible) {
  const Channel channel;
  const Process exporter({{"DEVICES", "2"}}, [&] {
    const CurrentContext context(1);
    channel.SendDescriptor(0, Export(Create(kBytes, 1)));
    channel.Await(0);
  });
  const Process importer(
      {{"DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "0"}}, [&] {
        const CurrentContext context(0);
        CUmemGenericAllocationHandle handle = 0;
        EXPECT_EQ(Import(&handle, channel.ReceiveDescriptor(1)),
                  CUDA_ERROR_INVALID_VALUE);
        channel.Signal(1);
      });
}

}  // namespace
}  // namespace datasetd::emulated_driver
