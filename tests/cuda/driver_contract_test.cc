// What daemon and client rely on from a CUDA driver beyond what its
// documentation says. The emulated driver runs these cases always, a GPU's
// driver where there is one: so the emulated one has the answers of the other.

#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_exported_memory.h"
#include "cuda/device/driver_api.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

constexpr size_t kBytes = size_t{2} << 20;
constexpr auto kReadOnly = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto kWritable = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

class DriverContractTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto context = CudaContext::Retain(0);
    if (!context.ok()) {
      const char* const required = std::getenv("DATASETD_REQUIRE_GPU");
      if (required != nullptr && std::string(required) == "1") {
        FAIL() << context.status();
      }
      GTEST_SKIP() << context.status();
    }
    context_ = *std::move(context);
    context_->MakeCurrentOrLog();
    api_ = &context_->api();
    auto slab = CudaVmmMemory::Create(*context_, kBytes);
    ASSERT_THAT(slab, IsOk());
    slab_ = *std::move(slab);
  }

  // Another mapping of the slab, as an importer has it; the exit unmaps.
  CUdeviceptr Import(CUmemAccess_flags access) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const auto fd = static_cast<uintptr_t>(slab_->file_descriptor());
    EXPECT_EQ(api_->cuMemImportFromShareableHandle(
                  &handle, reinterpret_cast<void*>(fd),
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    EXPECT_EQ(api_->cuMemAddressReserve(&address, kBytes, 0, 0, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(api_->cuMemMap(address, kBytes, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_->cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(SetAccess(address, access), CUDA_SUCCESS);
    return address;
  }
  CUresult SetAccess(CUdeviceptr address, CUmemAccess_flags flags) {
    CUmemAccessDesc access = {};
    access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                       .id = context_->device()};
    access.flags = flags;
    return api_->cuMemSetAccess(address, kBytes, &access, 1);
  }
  // Also waits: a copy from the host may return before it is made.
  CUresult Write(CUdeviceptr address, uint8_t byte) {
    const CUresult result = api_->cuMemcpyHtoD(address, &byte, 1);
    return result == CUDA_SUCCESS ? api_->cuCtxSynchronize() : result;
  }
  int Read(CUdeviceptr address) {
    uint8_t byte = 0;
    EXPECT_EQ(api_->cuMemcpyDtoH(&byte, address, 1), CUDA_SUCCESS);
    return byte;
  }
  CUdeviceptr slab() const {
    return reinterpret_cast<CUdeviceptr>(slab_->data());
  }

  std::unique_ptr<CudaContext> context_;
  const DriverApi* api_ = nullptr;
  std::unique_ptr<ExportedMemory> slab_;
};

TEST_F(DriverContractTest, AMappingForReadingIsNotWrittenUntilItIsUpgraded) {
  const CUdeviceptr mapping = Import(kReadOnly);
  ASSERT_EQ(Write(slab(), 42), CUDA_SUCCESS);
  EXPECT_EQ(Read(mapping), 42);
  EXPECT_EQ(Write(mapping, 7), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Read(slab()), 42);
  // An importer chooses its own access.
  EXPECT_EQ(SetAccess(mapping, kWritable), CUDA_SUCCESS);
  EXPECT_EQ(Write(mapping, 7), CUDA_SUCCESS);
  EXPECT_EQ(Read(slab()), 7);
}

TEST_F(DriverContractTest, ASecondMappingHasItsOwnAccess) {
  const CUdeviceptr reading = Import(kReadOnly);
  const CUdeviceptr writing = Import(kWritable);
  ASSERT_EQ(Write(writing, 9), CUDA_SUCCESS);
  EXPECT_EQ(Read(reading), 9);
  EXPECT_EQ(Write(reading, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverContractTest, AMappingKeepsTheMemoryOfAnOwnerThatFreedIt) {
  const CUdeviceptr mapping = Import(kWritable);
  ASSERT_EQ(Write(slab(), 42), CUDA_SUCCESS);
  slab_.reset();
  EXPECT_EQ(Read(mapping), 42);
}

// The client's threads permit unsafe calls in a capture of the job.
TEST_F(DriverContractTest, OnlyWaitingForTheDeviceInvalidatesACapture) {
  CUstream captured = nullptr, other = nullptr;
  CUevent event = nullptr;
  for (CUstream* const stream : {&captured, &other}) {
    ASSERT_EQ(
        api_->cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0),
        CUDA_SUCCESS);
  }
  ASSERT_EQ(api_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  void* const page = std::aligned_alloc(getpagesize(), getpagesize());
  CUdeviceptr word = 0;
  ASSERT_EQ(api_->cuMemHostRegister(page, getpagesize(),
                                    CU_MEMHOSTREGISTER_DEVICEMAP),
            CUDA_SUCCESS);
  ASSERT_EQ(api_->cuMemHostGetDevicePointer(&word, page, 0), CUDA_SUCCESS);
  struct Call {
    const char* name;
    std::function<CUresult()> make;
    bool is_harmless = true;
  };
  for (const Call& call : std::vector<Call>{
           {"cuCtxSynchronize", [&] { return api_->cuCtxSynchronize(); },
            false},
           {"cuStreamWriteValue64",
            [&] { return api_->cuStreamWriteValue64(other, word, 1, 0); }},
           {"cuLaunchHostFunc",
            [&] {
              return api_->cuLaunchHostFunc(
                  other, [](void*) {}, nullptr);
            }},
           {"cuEventRecord", [&] { return api_->cuEventRecord(event, other); }},
           {"cuStreamWaitEvent",
            [&] { return api_->cuStreamWaitEvent(other, event, 0); }},
           {"cuMemAlloc",
            [&] {
              CUdeviceptr memory = 0;
              const CUresult result = api_->cuMemAlloc(&memory, 4096);
              return result == CUDA_SUCCESS ? api_->cuMemFree(memory) : result;
            }},
           {"cuMemUnmap",
            [&] {
              slab_.reset();
              return CUDA_SUCCESS;
            }},
           {"cuMemHostUnregister",
            [&] { return api_->cuMemHostUnregister(page); }}}) {
    SCOPED_TRACE(call.name);
    ASSERT_EQ(
        api_->cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      context_->MakeCurrentOrLog();
      api_->cuThreadExchangeStreamCaptureMode(&mode);
      result = call.make();
    }).join();
    CUgraph graph = nullptr;
    const CUresult ended = api_->cuStreamEndCapture(captured, &graph);
    if (graph != nullptr) api_->cuGraphDestroy(graph);
    EXPECT_EQ(result == CUDA_SUCCESS, call.is_harmless) << result;
    EXPECT_EQ(ended == CUDA_SUCCESS, call.is_harmless) << ended;
  }
  std::free(page);
  EXPECT_EQ(api_->cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(api_->cuStreamDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(api_->cuStreamDestroy(captured), CUDA_SUCCESS);
}

}  // namespace
}  // namespace datasetd::testing
