// Releasing slots of a feed on a GPU, on a driver that runs on command.

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/cuda_driver.h"
#include "client/error_detail.h"
#include "client/feed_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_cuda.h"
#include "tests/client/feed_harness.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FeedHarness;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kStream = 0x10;
constexpr uint64_t kSideStream = 0x20;
constexpr uint64_t kThirdStream = 0x30;

std::string Library() {
  const char* const path = getenv("FAKE_CUDA");
  return std::string("./") + (path == nullptr ? "" : path);
}

template <typename Function>
Function* Control(const char* name) {
  void* const library = dlopen(Library().c_str(), RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class CudaReleaseTest : public ::testing::Test {
 protected:
  void Run(uint64_t stream) {
    Control<decltype(fake_cuda_run)>("fake_cuda_run")(stream);
  }
  void GiveWork(uint64_t stream, int* done) {
    Control<decltype(fake_cuda_give_work)>("fake_cuda_give_work")(stream,
                                                                  done);
  }
  void SetCapturing(uint64_t stream, bool is_capturing) {
    Control<decltype(fake_cuda_set_capturing)>("fake_cuda_set_capturing")(
        stream, is_capturing ? 1 : 0);
  }
  void SetWriteValue(bool has_write_value) {
    Control<decltype(fake_cuda_set_write_value)>("fake_cuda_set_write_value")(
        has_write_value ? 1 : 0);
  }
  FakeCudaCounts Counts() {
    return Control<decltype(fake_cuda_counts)>("fake_cuda_counts")();
  }
  absl::StatusOr<BatchInfo> Next(FeedHarness& harness) {
    EXPECT_TRUE(harness.daemon().Publish());
    return harness.core().Next(kStream, absl::ZeroDuration());
  }
  void TearDown() override {
    SetWriteValue(true);
    const FakeCudaCounts counts = Counts();
    EXPECT_EQ(counts.num_mappings, 0);
    EXPECT_EQ(counts.num_registered, 0);
    EXPECT_EQ(counts.num_events, 0);
    EXPECT_EQ(counts.num_contexts, 0);
    EXPECT_EQ(counts.num_violations, 0);
  }
};

TEST_F(CudaReleaseTest, SlotIsFreeWhenItsStreamGotThere) {
  FeedHarness harness({}, Library());
  EXPECT_EQ(harness.core().device().device_type, kDLCUDA);
  EXPECT_EQ(harness.core().device().device_id, 1);
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  int done = 0;
  GiveWork(kStream, &done);
  harness.Drop(*batch);
  // Requested at once, done when the stream is.
  EXPECT_EQ(
      harness.daemon().client_page()->release_requested[batch->slot].load(),
      1u);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(kStream);
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
  Run(kStream);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, EveryRecordedStreamIsWaitedFor) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t stream : {kSideStream, kThirdStream, kSideStream}) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, stream), IsOk());
  }
  int done = 0;
  GiveWork(kSideStream, &done);
  GiveWork(kThirdStream, &done);
  harness.Drop(*batch);
  Run(kStream);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(kThirdStream);
  Run(kStream);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  Run(kSideStream);
  Run(kStream);
  EXPECT_EQ(done, 2);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, StreamsOfABatchAreLimited) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  for (uint64_t i = 1; i < kMaxStreamsPerBatch; ++i) {
    ASSERT_THAT(harness.core().RecordStream(batch->slot, 0x100 + i), IsOk());
  }
  EXPECT_THAT(harness.core().RecordStream(batch->slot, 0x999),
              StatusIs(absl::StatusCode::kResourceExhausted));
  harness.Drop(*batch);
}

TEST_F(CudaReleaseTest, ReleaseDuringACaptureWaitsForItsEnd) {
  FeedHarness harness({}, Library());
  const auto first = Next(harness);
  ASSERT_THAT(first, IsOk());
  SetCapturing(kStream, true);
  harness.Drop(*first);
  EXPECT_EQ(harness.daemon().client_page()->release_requested[0].load(), 0u);
  SetCapturing(kStream, false);
  // The next release takes it along.
  const auto second = Next(harness);
  ASSERT_THAT(second, IsOk());
  harness.Drop(*second);
  Run(kStream);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, AllSlotsInACaptureIsAnErrorAndNoHang) {
  FeedHarness harness({}, Library());
  SetCapturing(kStream, true);
  for (int i = 0; i < 4; ++i) {
    const auto batch = Next(harness);
    ASSERT_THAT(batch, IsOk());
    harness.Drop(*batch);
  }
  const auto none =
      harness.core().Next(kStream, absl::InfiniteDuration());
  EXPECT_EQ(DetailOf(none.status()), ErrorDetail::kAllSlotsHeld);
  SetCapturing(kStream, false);
  EXPECT_THAT(harness.core().Next(kStream, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  Run(kStream);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST_F(CudaReleaseTest, ClosingWaitsForTheDevice) {
  FeedHarness harness({}, Library());
  const auto batch = Next(harness);
  ASSERT_THAT(batch, IsOk());
  int done = 0;
  GiveWork(kStream, &done);
  harness.Drop(*batch);
  harness.Close();
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
                  harness.core().FieldData(
                      batch->slot, harness.core().layout().fields()[0]),
                  sizeof(bytes)),
              IsOk());
  EXPECT_THAT(bytes, ::testing::Each(1));
  harness.Drop(*batch);
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
