// Stream capture, and what invalidates it.

#include <cuda.h>

#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

int num_ran = 0;

CUresult Give(CUstream stream) {
  return cuLaunchHostFunc(
      stream, [](void*) { ++num_ran; }, nullptr);
}

CUstream MakeStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  return stream;
}

CUevent MakeEvent() {
  CUevent event = nullptr;
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  return event;
}

CUstreamCaptureStatus StatusOf(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  return status;
}

CUresult End(CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph == nullptr, result != CUDA_SUCCESS);
  return result;
}

// The result of a call while a stream captures, and whether the capture lived.
struct Outcome {
  CUresult call;
  CUresult end;
};

Outcome CallInCapture(CUstreamCaptureMode mode,
                      const std::function<CUresult()>& call) {
  const CUstream stream = MakeStream();
  EXPECT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
  Outcome outcome;
  outcome.call = call();
  outcome.end = End(stream);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  return outcome;
}

void ExpectKept(const Outcome& outcome) {
  EXPECT_EQ(outcome.call, CUDA_SUCCESS);
  EXPECT_EQ(outcome.end, CUDA_SUCCESS);
}

void ExpectInvalidated(const Outcome& outcome, CUresult expected) {
  EXPECT_EQ(outcome.call, expected);
  EXPECT_EQ(outcome.end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// cuStreamBeginCapture: operations "will not be executed, but will instead be
// captured into a graph".
TEST(CaptureTest, WorkRunsWhenTheGraphIsLaunched) {
  WithContext({}, [] {
    const CUstream stream = MakeStream();
    ASSERT_EQ(cuStreamBeginCapture(stream, kGlobal), CUDA_SUCCESS);
    EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(cuStreamBeginCapture(stream, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(Give(stream), CUDA_SUCCESS);
    EXPECT_EQ(Give(stream), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(End(stream), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(num_ran, 0);
    CUgraphExec executable = nullptr;
    ASSERT_EQ(cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(num_ran, 4);
    EXPECT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
  });
}

// "Capture may not be initiated if stream is CU_STREAM_LEGACY."
TEST(CaptureTest, LegacyStreamCannotCapture) {
  WithContext({}, [] {
    EXPECT_EQ(cuStreamBeginCapture(nullptr, kGlobal),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  });
}

// cuThreadExchangeStreamCaptureMode.
TEST(CaptureTest, UnsafeCallsByMode) {
  InProcess({}, [] {
    const CurrentContext context;
    const auto alloc = [] {
      CUdeviceptr address = 0;
      return cuMemAlloc(&address, 1);
    };
    ExpectInvalidated(CallInCapture(kGlobal, alloc),
                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ExpectInvalidated(CallInCapture(kThreadLocal, alloc),
                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ExpectKept(CallInCapture(kRelaxed, alloc));
    const auto elsewhere = [&context, &alloc] {
      CUresult result = CUDA_ERROR_UNKNOWN;
      std::thread([&] {
        cuCtxPushCurrent(context.get());
        result = alloc();
      }).join();
      return result;
    };
    ExpectInvalidated(CallInCapture(kGlobal, elsewhere),
                      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ExpectKept(CallInCapture(kThreadLocal, elsewhere));
    const auto relaxed = [&alloc] {
      CUstreamCaptureMode mode = kRelaxed;
      EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      EXPECT_EQ(mode, kGlobal);
      const CUresult result = alloc();
      EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      EXPECT_EQ(mode, kRelaxed);
      return result;
    };
    ExpectKept(CallInCapture(kGlobal, relaxed));
  });
}

// CUDA Programming Guide, "Prohibited and Unhandled Operations": no mode allows
// waiting for what captures.
TEST(CaptureTest, SynchronisingTheContextInvalidates) {
  WithContext({}, [] {
    ExpectInvalidated(
        CallInCapture(kRelaxed, [] { return cuCtxSynchronize(); }),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  });
}

TEST(CaptureTest, AskingForTheStateOfACapturingStreamInvalidates) {
  WithContext({}, [] {
    const CUstream stream = MakeStream();
    for (const auto ask : {&cuStreamQuery, &cuStreamSynchronize}) {
      ASSERT_EQ(cuStreamBeginCapture(stream, kRelaxed), CUDA_SUCCESS);
      EXPECT_EQ(ask(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
      EXPECT_EQ(Give(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      EXPECT_EQ(End(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
  });
}

// cuStreamIsCapturing on the legacy stream: "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
// [...] The blocking stream capture is not invalidated."
TEST(CaptureTest, UseOfTheLegacyStreamInvalidatesABlockingCapture) {
  WithContext({}, [] {
    const CUstream blocking = MakeStream(0);
    ASSERT_EQ(cuStreamBeginCapture(blocking, kRelaxed), CUDA_SUCCESS);
    CUstreamCaptureStatus status;
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(StatusOf(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(Give(nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(End(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(Give(nullptr), CUDA_SUCCESS);
    // Another one is not concerned.
    ExpectKept(CallInCapture(kRelaxed, [] { return Give(nullptr); }));
  });
}

// "attempting cuEventQuery on an event that was last recorded inside a capture
// sequence".
TEST(CaptureTest, AskingForACapturedEventInvalidates) {
  WithContext({}, [] {
    const CUstream stream = MakeStream();
    const CUevent event = MakeEvent();
    ASSERT_EQ(cuStreamBeginCapture(stream, kRelaxed), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(End(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

// CUDA Programming Guide, "Cross-stream Dependencies and Events".
TEST(CaptureTest, OtherStreamsJoinByEvents) {
  WithContext({}, [] {
    const CUstream origin = MakeStream();
    const CUstream side = MakeStream();
    const CUevent fork_event = MakeEvent();
    const CUevent join_event = MakeEvent();
    for (const bool is_joined : {true, false}) {
      ASSERT_EQ(cuStreamBeginCapture(origin, kGlobal), CUDA_SUCCESS);
      ASSERT_EQ(cuEventRecord(fork_event, origin), CUDA_SUCCESS);
      ASSERT_EQ(cuStreamWaitEvent(side, fork_event, 0), CUDA_SUCCESS);
      EXPECT_EQ(StatusOf(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
      EXPECT_EQ(Give(side), CUDA_SUCCESS);
      EXPECT_EQ(End(side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
      CUgraph graph = nullptr;
      EXPECT_EQ(cuStreamEndCapture(origin, &graph),
                CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      EXPECT_EQ(StatusOf(side), CU_STREAM_CAPTURE_STATUS_NONE);

      ASSERT_EQ(cuStreamBeginCapture(origin, kGlobal), CUDA_SUCCESS);
      ASSERT_EQ(cuEventRecord(fork_event, origin), CUDA_SUCCESS);
      ASSERT_EQ(cuStreamWaitEvent(side, fork_event, 0), CUDA_SUCCESS);
      EXPECT_EQ(Give(side), CUDA_SUCCESS);
      if (is_joined) {
        ASSERT_EQ(cuEventRecord(join_event, side), CUDA_SUCCESS);
        ASSERT_EQ(cuStreamWaitEvent(origin, join_event, 0), CUDA_SUCCESS);
      }
      EXPECT_EQ(End(origin),
                is_joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    EXPECT_EQ(num_ran, 0);
  });
}

// cuda.h, CUDA_ERROR_STREAM_CAPTURE_MERGE and _ISOLATION.
TEST(CaptureTest, CapturesStayApart) {
  WithContext({}, [] {
    const CUstream first = MakeStream();
    const CUstream second = MakeStream();
    const CUevent event = MakeEvent();
    ASSERT_EQ(cuStreamBeginCapture(first, kRelaxed), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(second, kRelaxed), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(second, event, 0),
              CUDA_ERROR_STREAM_CAPTURE_MERGE);
    EXPECT_EQ(End(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(End(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Recorded outside.
    ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamBeginCapture(second, kRelaxed), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(second, event, 0),
              CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    EXPECT_EQ(End(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

// "this call must be from the same thread as cuStreamBeginCapture", unless
// relaxed.
TEST(CaptureTest, ThreadThatEnds) {
  InProcess({}, [] {
    const CurrentContext context;
    for (const auto mode : {kThreadLocal, kRelaxed}) {
      const CUstream stream = MakeStream();
      ASSERT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
      std::thread([&] {
        ASSERT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
        EXPECT_EQ(End(stream), mode == kRelaxed
                                   ? CUDA_SUCCESS
                                   : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
      }).join();
      if (mode != kRelaxed) {
        EXPECT_EQ(End(stream), CUDA_SUCCESS);
      }
    }
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
