// Releasing slots of a feed on a GPU: the emulated one, whose streams run on
// command.

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/connection/error_detail.h"
#include "client/device/cuda_driver.h"
#include "client/feed/feed_closer.h"
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

constexpr absl::Duration kLong = absl::Seconds(30);

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
    EXPECT_TRUE(FeedCloser::Await(kLong));
    const DatasetdEmulatedGpuCounts counts =
        DATASETD_CALL(datasetd_emulated_gpu_counts)();
    if (!is_feed_left_) {
      EXPECT_EQ(counts.num_mappings, before_.num_mappings);
      EXPECT_EQ(counts.num_allocations, before_.num_allocations);
      EXPECT_EQ(counts.num_pinned, before_.num_pinned);
      EXPECT_EQ(counts.num_events, before_.num_events);
      EXPECT_EQ(counts.num_streams,
                before_.num_streams + static_cast<int>(streams_.size()));
    }
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
  // The library's, which waits for all streams of a batch. REQUIRES: created by
  // the last FeedHarness, and no stream after it.
  static uint64_t OwnStream() {
    return reinterpret_cast<uint64_t>(
        DATASETD_CALL(datasetd_emulated_gpu_newest_stream)());
  }
  // No work belongs there; what is there all the same is done afterwards.
  void RunDefaultStream() {
    EXPECT_EQ(DATASETD_CALL(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  }
  void LetAllRun() {
    for (const CUstream stream : streams_) LetRun(stream);
  }
  static void LetRun(CUstream stream) {
    EXPECT_EQ(DATASETD_CALL(datasetd_emulated_gpu_hold)(stream, 0),
              CUDA_SUCCESS);
  }
  void AwaitAll() {
    for (const CUstream stream : streams_) {
      EXPECT_EQ(DATASETD_CALL(cuStreamSynchronize)(stream), CUDA_SUCCESS);
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
  void SetFaults(const char* faults) {
    EXPECT_EQ(DATASETD_CALL(datasetd_emulated_gpu_set_faults)(faults),
              CUDA_SUCCESS);
  }
  // The mappings of this test's feeds.
  int num_mappings() {
    return DATASETD_CALL(datasetd_emulated_gpu_counts)().num_mappings -
           before_.num_mappings;
  }
  void SetWriteValue(bool has_write_value) {
    DATASETD_CALL(datasetd_emulated_gpu_set_attribute)
    (CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
     has_write_value ? 1 : 0);
  }

  uint64_t stream_ = 0;
  uint64_t side_stream_ = 0;
  uint64_t third_stream_ = 0;
  DatasetdEmulatedGpuCounts before_;
  // By the test: its feed is to stay until the process ends.
  bool is_feed_left_ = false;

  static CUstream Handle(uint64_t stream) {
    return reinterpret_cast<CUstream>(stream);
  }

 private:
  static constexpr CUdevice kDevice = 1;

  std::vector<CUstream> streams_;
};

TEST_F(CudaReleaseTest, SlotIsFreeWhenItsStreamGotThere) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  EXPECT_EQ(harness.core().device().device_type, kDLCUDA);
  EXPECT_EQ(harness.core().device().device_id, 1);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  std::atomic<int> done = 0;
  GiveWork(stream_, &done);
  harness.Drop(*batch);
  // Requested at once, done when the stream is.
  EXPECT_EQ(
      harness.daemon().client_page()->release_requested[batch->slot].load(),
      1u);
  RunDefaultStream();
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(stream_);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, HostFunctionWhereStreamsCannotWrite) {
  SetWriteValue(false);
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, EveryRecordedStreamIsWaitedFor) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const uint64_t own_stream = OwnStream();
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t stream : {side_stream_, third_stream_, side_stream_}) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, stream), IsOk());
  }
  std::atomic<int> done = 0;
  for (uint64_t stream : {stream_, side_stream_, third_stream_}) {
    GiveWork(stream, &done);
  }
  harness.Drop(*batch);
  for (uint64_t stream : {third_stream_, side_stream_, stream_}) {
    Run(own_stream);
    EXPECT_EQ(harness.daemon().num_held(), 1u);
    Run(stream);
  }
  EXPECT_EQ(done, 3);
  Run(own_stream);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, StreamsOfABatchDoNotWaitForEachOther) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const uint64_t own_stream = OwnStream();
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  ASSERT_THAT(harness.core().RecordStream(batch->slot, side_stream_), IsOk());
  std::atomic<int> done = 0;
  GiveWork(side_stream_, &done);
  harness.Drop(*batch);
  GiveWork(stream_, &done);
  Run(stream_);
  EXPECT_EQ(done, 1);
  Run(side_stream_);
  Run(own_stream);
  EXPECT_EQ(done, 2);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

// One that reads the slab by peer access.
TEST_F(CudaReleaseTest, AStreamOfAnotherGpuIsWaitedFor) {
  CUcontext context = nullptr;
  ASSERT_EQ(DATASETD_CALL(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(DATASETD_CALL(cuCtxPushCurrent)(context), CUDA_SUCCESS);
  const uint64_t peer_stream = MakeStream();
  ASSERT_EQ(DATASETD_CALL(cuCtxPopCurrent)(nullptr), CUDA_SUCCESS);
  FeedHarness harness(FeedHarness::Device::kGpu);
  const uint64_t own_stream = OwnStream();
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  ASSERT_THAT(harness.core().RecordStream(batch->slot, peer_stream), IsOk());
  std::atomic<int> done = 0;
  GiveWork(peer_stream, &done);
  harness.Drop(*batch);
  Run(stream_);
  Run(own_stream);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(peer_stream);
  Run(own_stream);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
  const auto next = harness.Take(stream_);
  ASSERT_THAT(next, IsOk());
  harness.Drop(*next);
  Run(stream_);
  harness.Close();
  EXPECT_TRUE(FeedCloser::Await(kLong));
  EXPECT_EQ(DATASETD_CALL(datasetd_emulated_gpu_counts)().num_events,
            before_.num_events);
  EXPECT_EQ(DATASETD_CALL(cuDevicePrimaryCtxRelease)(0), CUDA_SUCCESS);
  --before_.num_streams;  // the peer's goes with its context
}

// The thread that releases a batch has another.
TEST_F(CudaReleaseTest, TheStreamPerThreadIsRefused) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto per_thread = reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD);
  const auto is_refused =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("stream: 2"), HasSubstr("pass a real stream")));
  ASSERT_TRUE(harness.daemon().Publish());
  EXPECT_THAT(harness.core().Next(per_thread, absl::ZeroDuration()),
              is_refused);
  // Nothing was taken.
  const auto batch = harness.core().Next(stream_, absl::ZeroDuration());
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->batch, 0u);
  EXPECT_THAT(harness.core().RecordStream(batch->slot, per_thread), is_refused);
  harness.Drop(*batch);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, StreamsOfABatchAreLimited) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const CUstream own_stream = Handle(OwnStream());
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t i = 1; i < kMaxStreamsPerBatch; ++i) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, MakeStream()), IsOk());
  }
  EXPECT_THAT(harness.core().RecordStream(batch->slot, MakeStream()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  harness.Drop(*batch);
  LetAllRun();
  LetRun(own_stream);
}

TEST_F(CudaReleaseTest, ReleaseDuringACaptureWaitsForItsEnd) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto first = harness.Take(stream_);
  ASSERT_THAT(first, IsOk());
  BeginCapture(stream_);
  harness.Drop(*first);
  EXPECT_EQ(harness.daemon().client_page()->release_requested[0].load(), 0u);
  EndCapture(stream_);
  // The next release takes it along.
  const auto second = harness.Take(stream_);
  ASSERT_THAT(second, IsOk());
  harness.Drop(*second);
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, AllSlotsInACaptureIsAnErrorAndNoHang) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  BeginCapture(stream_);
  for (int i = 0; i < 4; ++i) {
    const auto batch = harness.Take(stream_);
    ASSERT_THAT(batch, IsOk());
    harness.Drop(*batch);
  }
  const auto none = harness.core().Next(stream_, absl::InfiniteDuration());
  EXPECT_THAT(none,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "all 4 slots of the feed are kept alive by this process "
                       "(4 wait for the end of the capture of a stream), so no "
                       "batch can come: end the capture, or take batches "
                       "outside of it"));
  EXPECT_EQ(DetailOf(none.status()), ErrorDetail::kAllSlotsHeld);
  EndCapture(stream_);
  EXPECT_THAT(harness.core().Next(stream_, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  Run(stream_);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, SlotsThatAreHeldBesideACaptureAreNamed) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  BeginCapture(stream_);
  std::vector<BatchInfo> batches;
  for (int i = 0; i < 4; ++i) {
    const auto batch = harness.Take(stream_);
    ASSERT_THAT(batch, IsOk());
    batches.push_back(*batch);
  }
  harness.Drop(batches[1]);
  EXPECT_THAT(
      harness.core().Next(stream_, absl::InfiniteDuration()),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("(3 of the batches themselves, 1 wait for the "
                               "end of the capture of a stream)"),
                     HasSubstr("end the capture, or take batches outside of "
                               "it; or keep copies instead (.clone())"))));
  EndCapture(stream_);
  for (const int i : {0, 2, 3}) harness.Drop(batches[i]);
  LetAllRun();
}

// A garbage collection may close a feed, with locks that the device's work
// needs.
TEST_F(CudaReleaseTest, ClosingDoesNotWaitForTheDevice) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  std::atomic<int> done = 0;
  GiveWork(stream_, &done);
  harness.Drop(*batch);
  std::atomic<bool> has_closed = false;
  std::thread closing([&] {
    harness.Close();
    has_closed = true;
  });
  const absl::Time deadline = absl::Now() + kLong;
  while (!has_closed && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(has_closed);
  EXPECT_EQ(done, 0);
  // Memory that the device uses stays mapped.
  EXPECT_FALSE(FeedCloser::Await(absl::Milliseconds(100)));
  EXPECT_EQ(num_mappings(), 1);
  LetAllRun();
  closing.join();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, AnotherStreamsWorkDoesNotKeepAClosedFeed) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
  Run(stream_);
  std::atomic<int> done = 0;
  GiveWork(side_stream_, &done);
  harness.Close();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EXPECT_EQ(done, 0);
  ++before_.num_unmapped_under_work;
  LetAllRun();
  AwaitAll();
  EXPECT_EQ(done, 1);
}

// To synchronise a context is forbidden while a stream of it is captured.
TEST_F(CudaReleaseTest, ACaptureElsewhereSurvivesTheEndOfAFeed) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  Run(stream_);
  BeginCapture(side_stream_);
  harness.Drop(*batch);
  Run(stream_);
  harness.Close();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EndCapture(side_stream_);
}

TEST_F(CudaReleaseTest, ATensorThatDiesInACaptureComesBackAfterIt) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  FeedCore& core = harness.core();
  harness.Close();
  BeginCapture(stream_);
  core.Drop(batch->slot, core.batch_holder());
  EXPECT_FALSE(FeedCloser::Await(absl::Milliseconds(50)));
  EXPECT_EQ(harness.daemon().client_page()->release_requested[0].load(), 0u);
  EndCapture(stream_);
  LetAllRun();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

// A skipped batch was never used: its word is written by the CPU.
TEST_F(CudaReleaseTest, AFeedWithSkippedBatchesEnds) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
  Run(stream_);
  ASSERT_TRUE(harness.daemon().Publish());
  ASSERT_THAT(harness.core().Seek(3, 0), IsOk());
  const auto sought = harness.Take(stream_);
  ASSERT_THAT(sought, IsOk());
  EXPECT_EQ(sought->epoch, 3u);
  harness.Drop(*sought);
  Run(stream_);
  harness.Close();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
}

TEST_F(CudaReleaseTest, ABatchThatCannotBeReleasedEndsItsFeed) {
  is_feed_left_ = true;
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  SetFaults("cuStreamWriteValue64_v2@1+=400,cuLaunchHostFunc@1+=400");
  harness.Drop(*batch);
  SetFaults("");
  for (int i = 0; i < 2; ++i) {
    // Even if a batch is there.
    EXPECT_TRUE(harness.daemon().Publish());
    const auto next = harness.core().Next(stream_, absl::Milliseconds(1));
    EXPECT_THAT(next, StatusIs(absl::StatusCode::kInternal,
                               AllOf(HasSubstr("cuLaunchHostFunc"),
                                     HasSubstr("CUDA_ERROR_INVALID_HANDLE"),
                                     HasSubstr("restart this process"))));
    EXPECT_EQ(DetailOf(next.status()), ErrorDetail::kContextFailed);
  }
  // The daemon does not wait for the slot, which stays.
  EXPECT_EQ(
      harness.daemon().client_page()->release_requested[batch->slot].load(),
      0u);
  harness.Close();
  EXPECT_TRUE(FeedCloser::Await(kLong));
  EXPECT_EQ(num_mappings(), 1);
}

// cuStreamDestroy: what the stream was given goes on.
TEST_F(CudaReleaseTest, AStreamThatWasDestroyedBeforeItsBatchEndsItsFeed) {
  is_feed_left_ = true;
  FeedHarness harness(FeedHarness::Device::kGpu);
  const CUstream own_stream = Handle(OwnStream());
  const auto batch = harness.Take(stream_);
  ASSERT_THAT(batch, IsOk());
  CUstream short_lived = nullptr;
  ASSERT_EQ(DATASETD_CALL(cuStreamCreate)(&short_lived, CU_STREAM_NON_BLOCKING),
            CUDA_SUCCESS);
  const auto number = reinterpret_cast<uint64_t>(short_lived);
  ASSERT_THAT(harness.core().RecordStream(batch->slot, number), IsOk());
  std::atomic<int> done = 0;
  // Its work waits for the side stream.
  CUevent event = nullptr;
  ASSERT_EQ(DATASETD_CALL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING),
            CUDA_SUCCESS);
  GiveWork(side_stream_, &done);
  ASSERT_EQ(DATASETD_CALL(cuEventRecord)(
                event, reinterpret_cast<CUstream>(side_stream_)),
            CUDA_SUCCESS);
  ASSERT_EQ(DATASETD_CALL(cuStreamWaitEvent)(short_lived, event, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(DATASETD_CALL(cuEventDestroy)(event), CUDA_SUCCESS);
  GiveWork(number, &done);
  ASSERT_EQ(DATASETD_CALL(cuStreamDestroy)(short_lived), CUDA_SUCCESS);
  harness.Drop(*batch);
  Run(stream_);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  const auto next = harness.Take(stream_);
  EXPECT_THAT(
      next,
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("a batch of cuda:1 could not be given back"),
                     HasSubstr("CUDA_ERROR_INVALID_HANDLE"),
                     HasSubstr("keep streams longer"))));
  EXPECT_EQ(DetailOf(next.status()), ErrorDetail::kContextFailed);
  harness.Close();
  LetAllRun();
  LetRun(own_stream);
  EXPECT_EQ(DATASETD_CALL(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(done, 2);
}

TEST_F(CudaReleaseTest, BatchIsCopiedToTheHost) {
  FeedHarness harness(FeedHarness::Device::kGpu);
  const auto batch = harness.Take(stream_);
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
  EXPECT_THAT(CudaDriver::Open(std::string(16, 'x'), "cuda:3"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("cuda:3 GPU-78787878-7878"),
                             HasSubstr("cuda:1 GPU-75757575-7575"),
                             HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

}  // namespace
}  // namespace datasetd::client
