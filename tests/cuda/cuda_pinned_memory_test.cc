// Pieces are of a page or two, and the emulated driver counts them.

#include "cuda/device/cuda_pinned_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cuda/device/cuda_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::emulated_driver::Environment;
using ::datasetd::emulated_driver::InProcess;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// An entry point of the emulated driver.
template <typename Function>
Function* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define DATASETD_CALL(function) Find<decltype(function)>(#function)

int NumPinned() {
  return DATASETD_CALL(datasetd_emulated_gpu_counts)().num_pinned;
}

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

std::atomic<bool> is_cancelled = false;

// Runs `body` in a process of its own.
void WithContext(const Environment& environment,
                 std::function<void(const CudaContext&)> body) {
  InProcess(environment, [&] {
    const auto context = CudaContext::Retain(0);
    ASSERT_THAT(context, IsOk());
    body(**context);
  });
}

// The driver's own opinion of the pieces.
CUdeviceptr DeviceAddress(const CudaContext& context, void* host) {
  CUdeviceptr address = 0;
  EXPECT_EQ(context.api().cuMemHostGetDevicePointer(&address, host, 0),
            CUDA_SUCCESS);
  return address;
}

TEST(CudaPinnedMemoryTest, PiecesLieAtContiguousAddresses) {
  WithContext({}, [](const CudaContext& context) {
    const size_t piece = 2 * PageBytes();
    for (const auto& [size_bytes, num_pieces] : {std::pair<size_t, int>{1, 1},
                                                 {piece - 1, 1},
                                                 {piece, 1},
                                                 {piece + 1, 2},
                                                 {3 * piece, 3},
                                                 {3 * piece + 100, 4}}) {
      auto memory =
          CudaPinnedMemory::Create(context, size_bytes, is_cancelled, piece);
      ASSERT_THAT(memory, IsOk());
      EXPECT_EQ((*memory)->size_bytes(), size_bytes);
      EXPECT_EQ(NumPinned(), num_pieces) << size_bytes;
      uint8_t* const data = (*memory)->data();
      for (size_t i = 0; i < size_bytes; ++i) {
        ASSERT_EQ(data[i], 0);
        data[i] = static_cast<uint8_t>(i % 251);
      }
      for (size_t at = 0; at < size_bytes; at += piece) {
        EXPECT_EQ(DeviceAddress(context, data + at),
                  reinterpret_cast<CUdeviceptr>(data) + at);
      }
      memory->reset();
      EXPECT_EQ(NumPinned(), 0) << size_bytes;
    }
  });
}

TEST(CudaPinnedMemoryTest, TheFailureOfAPieceGivesBackTheOthers) {
  WithContext(
      {{"FAULTS", "cuMemHostRegister_v2@3=2"}}, [](const CudaContext& context) {
        const size_t piece = PageBytes();
        EXPECT_THAT(
            CudaPinnedMemory::Create(context, 5 * piece, is_cancelled, piece),
            StatusIs(absl::StatusCode::kResourceExhausted,
                     AllOf(HasSubstr("cuMemHostRegister: "
                                     "CUDA_ERROR_OUT_OF_MEMORY"),
                           HasSubstr("8192 of 20480 bytes were "
                                     "pinned"))));
        EXPECT_EQ(NumPinned(), 0);
        // The next one has nothing in its way.
        const auto memory =
            CudaPinnedMemory::Create(context, 5 * piece, is_cancelled, piece);
        ASSERT_THAT(memory, IsOk());
        EXPECT_EQ(NumPinned(), 5);
      });
}

TEST(CudaPinnedMemoryTest, ADriverThatMayNotPinNamesTheLimit) {
  WithContext(
      {{"FAULTS", "cuMemHostRegister_v2@1=800"}},
      [](const CudaContext& context) {
        EXPECT_THAT(
            CudaPinnedMemory::Create(context, 1, is_cancelled, PageBytes()),
            StatusIs(absl::StatusCode::kResourceExhausted,
                     AllOf(HasSubstr("CUDA_ERROR_NOT_PERMITTED"),
                           HasSubstr("LimitMEMLOCK="))));
      });
}

TEST(CudaPinnedMemoryTest, MoreThanThereIsIsRefusedBeforeAnyIsTaken) {
  WithContext({}, [](const CudaContext& context) {
    for (const size_t size_bytes : {size_t{1} << 50, ~size_t{0}}) {
      EXPECT_THAT(CudaPinnedMemory::Create(context, size_bytes, is_cancelled,
                                           PageBytes()),
                  StatusIs(absl::StatusCode::kResourceExhausted,
                           HasSubstr(std::to_string(size_bytes))));
    }
    EXPECT_THAT(
        CudaPinnedMemory::Create(context, 0, is_cancelled, PageBytes()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 bytes")));
  });
}

TEST(CudaPinnedMemoryTest, ACancelledLoadEndsBetweenPieces) {
  WithContext({}, [](const CudaContext& context) {
    is_cancelled = true;
    EXPECT_THAT(CudaPinnedMemory::Create(context, 1, is_cancelled, PageBytes()),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(NumPinned(), 0);
  });
}

TEST(CudaPinnedMemoryTest, ADeviceWithAddressesOfItsOwnIsRefused) {
  // CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM.
  WithContext({{"ATTRIBUTES", "91=0"}}, [](const CudaContext& context) {
    EXPECT_THAT(CudaPinnedMemory::Create(context, 1, is_cancelled, PageBytes()),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("unified addressing")));
    EXPECT_EQ(NumPinned(), 0);
  });
}

// Others must not be mapped where the driver still knows pinned memory.
TEST(CudaPinnedMemoryTest, WhatCannotBeUnpinnedKeepsItsAddresses) {
  WithContext({{"FAULTS", "cuMemHostUnregister@1=999"}},
              [](const CudaContext& context) {
                auto memory = CudaPinnedMemory::Create(
                    context, 100, is_cancelled, PageBytes());
                ASSERT_THAT(memory, IsOk());
                uint8_t* const data = (*memory)->data();
                memory->reset();
                EXPECT_EQ(NumPinned(), 1);
                EXPECT_EQ(data[99], 0);
              });
}

}  // namespace
}  // namespace datasetd
