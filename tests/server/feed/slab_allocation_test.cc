#include "server/feed/slab_allocation.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/backend/device_failure.h"
#include "cuda/host/host_backend.h"
#include "datasetd/v1/feed.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kSize = 2 << 20;
constexpr ExportKind kIpc = ExportKind::kCudaIpcHandle;
constexpr ExportKind kVmm = ExportKind::kCudaVmmFd;

// A device with two ways to share memory, each of which may fail.
class TwoWayBackend : public FaultyBackend {
 public:
  TwoWayBackend() : FaultyBackend(CreateHostBackend({.num_threads = 1})) {
    info_.name = "cuda:0";
  }
  const DeviceInfo& info() const override { return info_; }
  std::vector<ExportKind> export_kinds() const override { return {kIpc, kVmm}; }
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    asked.push_back(kind);
    if (!errors[kind].ok()) return errors[kind];
    return FaultyBackend::AllocateExported(size_bytes, ExportKind::kMemfd);
  }

  std::map<ExportKind, absl::Status> errors;
  std::vector<ExportKind> asked;

 private:
  DeviceInfo info_;
};

class SlabAllocationTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ExportedMemory>> Allocate(
      std::vector<ExportKind> allowed, std::vector<v1::ExportKind> excluded) {
    backend_.asked.clear();
    return AllocateSlab(backend_, kSize, allowed,
                        std::vector<int>(excluded.begin(), excluded.end()));
  }

  TwoWayBackend backend_;
};

TEST_F(SlabAllocationTest, TheFirstWayThatIsLeftIsTaken) {
  EXPECT_THAT(Allocate({}, {}), IsOk());
  EXPECT_THAT(backend_.asked, ElementsAre(kIpc));
  EXPECT_THAT(Allocate({kVmm}, {}), IsOk());
  EXPECT_THAT(backend_.asked, ElementsAre(kVmm));
  EXPECT_THAT(Allocate({}, {v1::EXPORT_KIND_CUDA_IPC_HANDLE}), IsOk());
  EXPECT_THAT(backend_.asked, ElementsAre(kVmm));
}

TEST_F(SlabAllocationTest, AWayThatIsNotToBeHadGivesWayToTheNext) {
  backend_.errors[kIpc] = absl::UnimplementedError("no such handles");
  const auto slab = Allocate({}, {});
  ASSERT_THAT(slab, IsOk());
  EXPECT_EQ((*slab)->size_bytes(), kSize);
  EXPECT_THAT(backend_.asked, ElementsAre(kIpc, kVmm));
}

TEST_F(SlabAllocationTest, WhateverRefusesAWayTheNextIsTried) {
  for (const absl::Status& error :
       {absl::InternalError("CUDA_ERROR_NOT_PERMITTED"),
        absl::UnavailableError("CUDA_ERROR_SYSTEM_NOT_READY")}) {
    backend_.errors[kIpc] = error;
    EXPECT_THAT(Allocate({}, {}), IsOk());
    EXPECT_THAT(backend_.asked, ElementsAre(kIpc, kVmm));
  }
  backend_.errors[kVmm] = absl::InternalError("CUDA_ERROR_MAP_FAILED");
  EXPECT_THAT(Allocate({}, {}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("CUDA_ERROR_SYSTEM_NOT_READY"),
                             HasSubstr("CUDA_ERROR_MAP_FAILED"))));
}

TEST_F(SlabAllocationTest, OnAFailedDeviceNoOtherWayIsTried) {
  backend_.errors[kIpc] = DeviceFailure(absl::InternalError("fell off"));
  EXPECT_THAT(Allocate({}, {}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("fell off")));
  EXPECT_THAT(backend_.asked, ElementsAre(kIpc));
}

TEST_F(SlabAllocationTest, WithoutMemoryNoOtherWayIsTried) {
  backend_.errors[kIpc] = absl::ResourceExhaustedError("2097152 bytes");
  EXPECT_THAT(Allocate({}, {}), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("2097152")));
  EXPECT_THAT(backend_.asked, ElementsAre(kIpc));
}

TEST_F(SlabAllocationTest, WhenNoneIsLeftEachIsNamedWithItsReason) {
  backend_.errors[kVmm] = absl::UnimplementedError("an old driver");
  EXPECT_THAT(
      Allocate({}, {v1::EXPORT_KIND_CUDA_IPC_HANDLE}),
      StatusIs(absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("cuda:0"),
                     HasSubstr("cuda_ipc_handle (failed in the client)"),
                     HasSubstr("cuda_vmm_fd (an old driver)"))));
  EXPECT_THAT(Allocate({kIpc}, {v1::EXPORT_KIND_CUDA_IPC_HANDLE}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("cuda_vmm_fd (not allowed by "
                                 "'slab_export')")));
  EXPECT_THAT(backend_.asked, IsEmpty());
}

// The driver takes such a client for the daemon, and refuses its handle.
TEST_F(SlabAllocationTest, AClientOfTheDaemonsNumberGetsADescriptor) {
  EXPECT_THAT(AllocateSlab(backend_, kSize, {}, {}, /*has_daemons_pid=*/true),
              IsOk());
  EXPECT_THAT(backend_.asked, ElementsAre(kVmm));
  backend_.asked.clear();
  EXPECT_THAT(
      AllocateSlab(backend_, kSize, {kIpc}, {}, /*has_daemons_pid=*/true),
      StatusIs(absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("cuda_ipc_handle (daemon and client have the "
                               "same process number"),
                     HasSubstr("cuda_vmm_fd (not allowed"))));
  EXPECT_THAT(backend_.asked, IsEmpty());
}

TEST_F(SlabAllocationTest, WhatIsAllowedBindsDevicesOnly) {
  const auto host = CreateHostBackend({.num_threads = 1});
  EXPECT_THAT(AllocateSlab(*host, kSize, {kVmm}, {}, /*has_daemons_pid=*/true),
              IsOk());
}

}  // namespace
}  // namespace datasetd
