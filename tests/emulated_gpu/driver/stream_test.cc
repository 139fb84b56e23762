// Streams, events, host functions and written words.

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

using ::testing::ElementsAre;

// The numbers of the steps that ran, in order.
std::vector<int> ran;

struct Step {
  int number;
};

void Run(void* argument) {
  const std::unique_ptr<Step> step(static_cast<Step*>(argument));
  ran.push_back(step->number);
}

void Give(CUstream stream, int number) {
  EXPECT_EQ(cuLaunchHostFunc(stream, &Run, new Step{number}), CUDA_SUCCESS);
}

CUstream MakeStream(unsigned flags, bool is_held = true) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  if (is_held) {
    EXPECT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
  }
  return stream;
}

CUevent MakeEvent() {
  CUevent event = nullptr;
  EXPECT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  return event;
}

void Advance(CUstream stream) {
  EXPECT_EQ(datasetd_emulated_gpu_advance(stream), CUDA_SUCCESS);
}

// cuStreamQuery, cuStreamSynchronize.
TEST(StreamTest, WorkIsNotDoneWhenTheCallReturns) {
  WithContext({}, [] {
    const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
    Give(stream, 1);
    Give(stream, 2);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_THAT(ran, ElementsAre());
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_THAT(ran, ElementsAre(1, 2));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  });
}

// "the resources [...] will be released automatically once the device has
// completed all work".
TEST(StreamTest, DestroyedStreamFinishesItsWork) {
  WithContext({}, [] {
    const CUstream stream = MakeStream(0);
    Give(stream, 1);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_THAT(ran, ElementsAre(1));
  });
}

// CUDA Programming Guide, "Legacy Default Stream".
TEST(StreamTest, LegacyStreamIsInStepWithBlockingStreams) {
  WithContext({}, [] {
    const CUstream blocking = MakeStream(0);
    const CUstream other = MakeStream(0, false);
    Give(blocking, 1);
    Give(nullptr, 2);
    Give(other, 3);
    EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(datasetd_emulated_gpu_hold(blocking, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  });
}

// cuStreamCreate, CU_STREAM_NON_BLOCKING: "no implicit synchronization with
// stream 0".
TEST(StreamTest, NonBlockingStreamIsNot) {
  WithContext({}, [] {
    const CUstream free_stream = MakeStream(CU_STREAM_NON_BLOCKING);
    Give(free_stream, 1);
    Give(CU_STREAM_LEGACY, 2);
    EXPECT_EQ(cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
    EXPECT_THAT(ran, ElementsAre(2));
    Advance(free_stream);
    EXPECT_THAT(ran, ElementsAre(2, 1));
  });
}

// CUDA Programming Guide, "Per-thread Default Stream".
TEST(StreamTest, PerThreadStreamsAreOnesOwn) {
  InProcess({}, [] {
    const CurrentContext context;
    const CUstream own = CU_STREAM_PER_THREAD;
    ASSERT_EQ(datasetd_emulated_gpu_hold(own, 1), CUDA_SUCCESS);
    Give(own, 1);
    std::thread([&] {
      ASSERT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
      Give(CU_STREAM_PER_THREAD, 2);
      EXPECT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    }).join();
    EXPECT_THAT(ran, ElementsAre(2));
    // In step with the legacy stream.
    Give(nullptr, 3);
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_EQ(datasetd_emulated_gpu_hold(own, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_THAT(ran, ElementsAre(2, 1, 3));
  });
}

// cuStreamWaitEvent: "the most recently captured state at the time of the API
// call".
TEST(StreamTest, WaitIsForTheLastRecordByThen) {
  WithContext({}, [] {
    const CUstream first = MakeStream(CU_STREAM_NON_BLOCKING);
    const CUstream second = MakeStream(CU_STREAM_NON_BLOCKING);
    const CUevent event = MakeEvent();
    // Not recorded: nothing to wait for.
    EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
    Give(second, 1);
    Advance(second);
    EXPECT_THAT(ran, ElementsAre(1));

    Give(first, 2);
    ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
    // A later record is not waited for.
    Give(first, 3);
    ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
    Give(second, 4);
    Advance(second);
    EXPECT_THAT(ran, ElementsAre(1));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    Advance(first);
    EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
    Advance(second);
    EXPECT_THAT(ran, ElementsAre(1, 2, 3, 4));
  });
}

// cuEventDestroy: "An event may be destroyed before it is complete".
TEST(StreamTest, EventThatIsDestroyedEarly) {
  WithContext({}, [] {
    const CUstream first = MakeStream(CU_STREAM_NON_BLOCKING);
    const CUstream second = MakeStream(CU_STREAM_NON_BLOCKING);
    const CUevent event = MakeEvent();
    Give(first, 1);
    ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
    Give(second, 2);
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    Advance(second);
    EXPECT_THAT(ran, ElementsAre());
    Advance(first);
    Advance(second);
    EXPECT_THAT(ran, ElementsAre(1, 2));
  });
}

// cuEventRecord: "hEvent and hStream must be from the same context".
TEST(StreamTest, EventOfAnotherContext) {
  InProcess({{"DEVICES", "2"}}, [] {
    const CurrentContext first(0);
    const CUevent event = MakeEvent();
    {
      const CurrentContext second(1);
      const CUstream stream = MakeStream(0, false);
      EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
      // Waiting is allowed.
      EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
    }
    CUevent shared = nullptr;
    EXPECT_EQ(cuEventCreate(&shared, CU_EVENT_INTERPROCESS),
              CUDA_ERROR_NOT_SUPPORTED);
  });
}

// cuLaunchHostFunc: "The host function must not make any CUDA API calls."
TEST(StreamTest, HostFunctionThatCallsTheDriver) {
  WithContext({}, [] {
    static std::atomic<CUresult> result = CUDA_SUCCESS;
    ASSERT_EQ(cuLaunchHostFunc(
                  nullptr, [](void*) { result = cuCtxSynchronize(); }, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(datasetd_emulated_gpu_counts().num_findings, 1);
  });
}

// cuStreamWriteValue64.
TEST(StreamTest, WordsAreWrittenInOrder) {
  WithContext({}, [] {
    alignas(8) static std::atomic<uint64_t> words[2];
    ASSERT_EQ(cuMemHostRegister(words, sizeof(words), 0), CUDA_SUCCESS);
    const auto address = reinterpret_cast<CUdeviceptr>(words);
    const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
    Give(stream, 1);
    ASSERT_EQ(cuStreamWriteValue64(stream, address + 8, 77, 0), CUDA_SUCCESS);
    EXPECT_EQ(words[1], 0u);
    Advance(stream);
    EXPECT_EQ(words[1], 77u);
    EXPECT_EQ(cuStreamWriteValue64(stream, address + 4, 1, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue64(stream, address + 16, 1, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue64(stream, address, 1, 8),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue32(stream, address + 4, 1, 0), CUDA_SUCCESS);
    datasetd_emulated_gpu_set_attribute(
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0);
    EXPECT_EQ(cuStreamWriteValue64(stream, address, 1, 0),
              CUDA_ERROR_NOT_SUPPORTED);
    // A word that is gone when the stream gets there.
    ASSERT_EQ(cuMemHostUnregister(words), CUDA_SUCCESS);
    Advance(stream);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

// The order between streams without events is anybody's, and depends on the
// seed.
TEST(StreamTest, UnorderedStreamsFinishInShuffledOrder) {
  WithContext({{"MAX_DELAY_US", "2000"}, {"SEED", "3"}}, [] {
    static std::atomic<int> next;
    static int first_counts[2];
    const CUstream streams[] = {MakeStream(CU_STREAM_NON_BLOCKING, false),
                                MakeStream(CU_STREAM_NON_BLOCKING, false)};
    for (int round = 0; round < 40; ++round) {
      next = 0;
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(cuLaunchHostFunc(
                      streams[i],
                      [](void* count) {
                        if (next++ == 0) ++*static_cast<int*>(count);
                      },
                      &first_counts[i]),
                  CUDA_SUCCESS);
      }
      ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    }
    EXPECT_GT(first_counts[0], 0);
    EXPECT_GT(first_counts[1], 0);
  });
}

TEST(StreamTest, PrioritiesAndFlagsAreKept) {
  InProcess({}, [] {
    const CurrentContext context;
    int least = 1;
    int greatest = 1;
    ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
    EXPECT_LT(greatest, least);
    CUstream stream = nullptr;
    ASSERT_EQ(
        cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest),
        CUDA_SUCCESS);
    int priority = 1;
    unsigned flags = 0;
    EXPECT_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    CUcontext of_stream = nullptr;
    EXPECT_EQ(cuStreamGetCtx(stream, &of_stream), CUDA_SUCCESS);
    EXPECT_EQ(of_stream, context.get());
    EXPECT_EQ(priority, greatest);
    EXPECT_EQ(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
    EXPECT_EQ(cuStreamCreate(&stream, 4), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
