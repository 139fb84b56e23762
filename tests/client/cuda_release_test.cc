// Releasing slots of a feed on a GPU: the emulated one, whose streams run on
// command.

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/connection/error_detail.h"
#include "client/device/cuda_driver.h"
#include "client/feed/feed_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/feed_harness.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FeedHarness;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Library() {
  const char* const path = getenv("LIBCUDA");
  return std::string("./") + (path == nullptr ? "" : path);
}

// An entry point of the emulated driver.
template <typename Function>
Function* Find(const char* name, Function*) {
  static void* const library = dlopen(Library().c_str(), RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define DATASETD_CALL(function) Find(DATASETD_NAME(function), &function)
#define DATASETD_NAME(function) DATASETD_TEXT(function)
#define DATASETD_TEXT(function) #function

// The job: it has the context of the GPU current, and streams that stand still
// until the test lets them run.
class CudaReleaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(DATASETD_CALL(cuInit)(0), CUDA_SUCCESS);
    CUcontext context;
    ASSERT_EQ(DATASETD_CALL(cuDevicePrimaryCtxRetain)(&context, kDevice),
              CUDA_SUCCESS);
    ASSERT_EQ(DATASETD_CALL(cuCtxPushCurrent)(context), CUDA_SUCCESS);
    DATASETD_CALL(datasetd_emulated_gpu_hold_new)(1);
    before_ = DATASETD_CALL(datasetd_emulated_gpu_counts)();
    stream_ = MakeStream();
    side_stream_ = MakeStream();
    third_stream_ = MakeStream();
  }

  // Nothing is left of the feed, and no call was wrong.
  void TearDown() override {
    SetWriteValue(true);
    const DatasetdEmulatedGpuCounts counts =
        DATASETD_CALL(datasetd_emulated_gpu_counts)();
    EXPECT_EQ(counts.num_mappings, 0);
    EXPECT_EQ(counts.num_allocations, 0);
    EXPECT_EQ(counts.num_pinned, 0);
    EXPECT_EQ(counts.num_events, 0);
    EXPECT_EQ(counts.num_captures, 0);
    EXPECT_EQ(counts.num_current, 1);
    EXPECT_EQ(counts.num_unmapped_under_work, before_.num_unmapped_under_work);
    EXPECT_EQ(counts.num_findings, 0);
    EXPECT_EQ(DATASETD_CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(DATASETD_CALL(cuCtxPopCurrent)(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(DATASETD_CALL(cuDevicePrimaryCtxRelease)(kDevice), CUDA_SUCCESS);
  }

  uint64_t MakeStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(DATASETD_CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    streams_.push_back(stream);
    return reinterpret_cast<uint64_t>(stream);
  }
  // Runs what the stream has been given, as far as it waits for no other.
  void Run(uint64_t stream) {
    EXPECT_EQ(DATASETD_CALL(datasetd_emulated_gpu_advance)(Handle(stream)),
              CUDA_SUCCESS);
  }
  void LetAllRun() {
    for (const CUstream stream : streams_) {
      EXPECT_EQ(DATASETD_CALL(datasetd_emulated_gpu_hold)(stream, 0),
                CUDA_SUCCESS);
    }
  }
  // Adds 1 to `done` when it runs.
  void GiveWork(uint64_t stream, std::atomic<int>* done) {
    EXPECT_EQ(DATASETD_CALL(cuLaunchHostFunc)(
                  Handle(stream),
                  [](void* count) { ++*static_cast<std::atomic<int>*>(count); },
                  done),
              CUDA_SUCCESS);
  }
  void BeginCapture(uint64_t stream) {
    EXPECT_EQ(DATASETD_CALL(cuStreamBeginCapture)(
                  Handle(stream), CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
  }
  // The capture is valid, and nothing came into it.
  void EndCapture(uint64_t stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(DATASETD_CALL(cuStreamEndCapture)(Handle(stream), &graph),
              CUDA_SUCCESS);
    size_t num_nodes = 1;
    EXPECT_EQ(DATASETD_CALL(cuGraphGetNodes)(graph, nullptr, &num_nodes),
              CUDA_SUCCESS);
    EXPECT_EQ(num_nodes, 0u);
    EXPECT_EQ(DATASETD_CALL(cuGraphDestroy)(graph), CUDA_SUCCESS);
  }
  void SetWriteValue(bool has_write_value) {
    DATASETD_CALL(datasetd_emulated_gpu_set_attribute)
    (CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
     has_write_value ? 1 : 0);
  }
  absl::StatusOr<BatchInfo> Next(FeedHarness& harness) {
    EXPECT_TRUE(harness.daemon().Publish());
    return harness.core().Next(stream_, absl::ZeroDuration());
  }

  uint64_t stream_ = 0;
  uint64_t side_stream_ = 0;
  uint64_t third_stream_ = 0;

 private:
  static constexpr CUdevice kDevice = 1;

  static CUstream Handle(uint64_t stream) {
    return reinterpret_cast<CUstream>(stream);
  }

  std::vector<CUstream> streams_;
  DatasetdEmulatedGpuCounts before_;
};

TEST_F(CudaReleaseTest, SlotIsFreeWhenItsStreamGotThere) {
  FeedHarness harness({}, Library());
  EXPECT_EQ(harness.core().device().device_type, kDLCUDA);
  EXPECT_EQ(harness.core().device().device_id, 1);
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  std::atomic<int> done = 0;
  GiveWork(stream_, &done);
  harness.Drop(*batch);
  // Requested at once, done when the stream is.
  EXPECT_EQ(
      harness.daemon().client_page()->release_requested[batch->slot].load(),
      1u);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(stream_);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, HostFunctionWhereStreamsCannotWrite) {
  SetWriteValue(false);
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, EveryRecordedStreamIsWaitedFor) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t stream : {side_stream_, third_stream_, side_stream_}) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, stream), IsOk());
  }
  std::atomic<int> done = 0;
  GiveWork(side_stream_, &done);
  GiveWork(third_stream_, &done);
  harness.Drop(*batch);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(third_stream_);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(side_stream_);
  Run(stream_);
  EXPECT_EQ(done, 2);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, StreamsOfABatchAreLimited) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t i = 1; i < kMaxStreamsPerBatch; ++i) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, MakeStream()), IsOk());
  }
  EXPECT_THAT(harness.core().RecordStream(batch->slot, MakeStream()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  harness.Drop(*batch);
  LetAllRun();
}

TEST_F(CudaReleaseTest, ReleaseDuringACaptureWaitsForItsEnd) {
  FeedHarness harness({}, Library());
  const auto first = Next(harness);
  ASSERT_THAT(first, IsOk());
  BeginCapture(stream_);
  harness.Drop(*first);
  EXPECT_EQ(harness.daemon().client_page()->release_requested[0].load(), 0u);
  EndCapture(stream_);
  // The next release takes it along.
  const auto second = Next(harness);
  ASSERT_THAT(second, IsOk());
  harness.Drop(*second);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, AllSlotsInACaptureIsAnErrorAndNoHang) {
  FeedHarness harness({}, Library());
  BeginCapture(stream_);
  for (int i = 0; i < 4; ++i) {
    const auto batch = Next(harness);
    ASSERT_THAT(batch, IsOk());
    harness.Drop(*batch);
  }
  const auto none = harness.core().Next(stream_, absl::InfiniteDuration());
  EXPECT_EQ(DetailOf(none.status()), ErrorDetail::kAllSlotsHeld);
  EndCapture(stream_);
  EXPECT_THAT(harness.core().Next(stream_, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, ClosingWaitsForTheDevice) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  std::atomic<int> done = 0;
  GiveWork(stream_, &done);
  harness.Drop(*batch);
  std::thread closing([&harness] { harness.Close(); });
  EXPECT_EQ(done, 0);
  LetAllRun();
  closing.join();
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, BatchIsCopiedToTheHost) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  char bytes[12] = {};
  ASSERT_THAT(harness.core().CopyToHost(
                  bytes,
                  harness.core().FieldData(batch->slot,
                                           harness.core().layout().fields()[0]),
                  sizeof(bytes)),
              IsOk());
  EXPECT_THAT(bytes, ::testing::Each(1));
  harness.Drop(*batch);
  Run(stream_);
}

TEST_F(CudaReleaseTest, GpuThatIsNotVisible) {
  EXPECT_THAT(CudaDriver::Open(std::string(16, 'x'), "cuda:3", Library()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("cuda:3 GPU-78787878-7878"),
                             HasSubstr("cuda:1 GPU-75757575-7575"),
                             HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

TEST_F(CudaReleaseTest, NoDriver) {
  EXPECT_THAT(
      CudaDriver::Open(std::string(16, 'u'), "cuda:0", "libno_cuda.so"),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("libno_cuda.so")));
}

}  // namespace
}  // namespace datasetd::client
