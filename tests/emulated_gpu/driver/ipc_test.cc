// Memory handles between processes.

#include <cuda.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
constexpr size_t kBytes = size_t{2} << 20;

CUdeviceptr Export(CUipcMemHandle* handle, uint8_t value,
                   size_t size_bytes = kBytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, size_bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(address, value, size_bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcGetMemHandle(handle, address), CUDA_SUCCESS);
  return address;
}

uint8_t ReadByte(CUdeviceptr address) {
  uint8_t byte = 0;
  EXPECT_EQ(cuMemcpyDtoH(&byte, address, 1), CUDA_SUCCESS);
  return byte;
}

// An exporter that waits for a signal before it frees, and again before it
// ends.
void RunExporter(const Channel& channel) {
  const CurrentContext context;
  CUipcMemHandle handle;
  const CUdeviceptr address = Export(&handle, 42);
  channel.Send(0, &handle, sizeof(handle));
  channel.Await(0);
  EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
  channel.Signal(0);
  channel.Await(0);
}

CUipcMemHandle ReceiveHandle(const Channel& channel) {
  CUipcMemHandle handle;
  channel.Receive(1, &handle, sizeof(handle));
  return handle;
}

TEST(IpcTest, ImporterSharesTheMemory) {
  const Channel channel;
  const Process exporter({}, [&] {
    const CurrentContext context;
    CUipcMemHandle handle;
    const CUdeviceptr address = Export(&handle, 42);
    channel.Send(0, &handle, sizeof(handle));
    channel.Await(0);
    EXPECT_EQ(ReadByte(address + 5), 43);
    EXPECT_EQ(datasetd_emulated_gpu_counts().num_findings, 0);
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(datasetd_emulated_gpu_counts().num_findings, 0);
  });
  const Process importer({}, [&] {
    const CurrentContext context;
    CUdeviceptr address = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&address, ReceiveHandle(channel), kLazy),
              CUDA_SUCCESS);
    EXPECT_EQ(ReadByte(address + kBytes - 1), 42);
    EXPECT_EQ(cuMemsetD8(address, 43, 10), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    channel.Signal(1);
  });
}

// "the reference count on the handle is incremented by 1 and the existing
// device pointer is returned".
TEST(IpcTest, OpenedTwiceIsClosedTwice) {
  const Channel channel;
  const Process exporter({}, [&] { RunExporter(channel); });
  const Process importer({}, [&] {
    const CurrentContext context;
    const CUipcMemHandle handle = ReceiveHandle(channel);
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&first, handle, kLazy), CUDA_SUCCESS);
    ASSERT_EQ(cuIpcOpenMemHandle(&second, handle, kLazy), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(cuIpcCloseMemHandle(first), CUDA_SUCCESS);
    EXPECT_EQ(ReadByte(first), 42);
    EXPECT_EQ(cuIpcCloseMemHandle(first), CUDA_SUCCESS);
    EXPECT_EQ(cuIpcCloseMemHandle(first), CUDA_ERROR_INVALID_VALUE);
    uint8_t byte = 0;
    EXPECT_EQ(cuMemcpyDtoH(&byte, first, 1), CUDA_ERROR_INVALID_VALUE);
    channel.Signal(1);
    channel.Await(1);
    // The exporter has freed it.
    EXPECT_EQ(cuIpcOpenMemHandle(&first, handle, kLazy),
              CUDA_ERROR_INVALID_HANDLE);
    channel.Signal(1);
  });
}

// UCX #11226: a handle of the own process is refused so.
TEST(IpcTest, OwnHandleIsRefused) {
  WithContext({}, [] {
    CUipcMemHandle handle;
    Export(&handle, 1);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuIpcOpenMemHandle(&address, handle, kLazy),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuIpcOpenMemHandle(&address, handle, 0),
              CUDA_ERROR_INVALID_VALUE);
    handle.reserved[0] ^= 1;
    EXPECT_EQ(cuIpcOpenMemHandle(&address, handle, kLazy),
              CUDA_ERROR_INVALID_VALUE);
  });
}

// "Takes a pointer to the base of an existing device memory allocation".
TEST(IpcTest, OnlyTheBaseOfCuMemAllocHasAHandle) {
  WithContext({}, [] {
    CUipcMemHandle handle;
    const CUdeviceptr address = Export(&handle, 1);
    EXPECT_EQ(cuIpcGetMemHandle(&handle, address + 256),
              CUDA_ERROR_INVALID_VALUE);
    void* pinned = nullptr;
    ASSERT_EQ(cuMemHostAlloc(&pinned, 100, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(pinned)),
              CUDA_ERROR_INVALID_VALUE);
  });
}

// CUDA Programming Guide, "Interprocess Communication": "CUDA IPC will share
// the entire underlying memory block".
TEST(IpcTest, ImporterSeesTheNeighboursInABlock) {
  const Channel channel;
  const Process exporter({}, [&] {
    const CurrentContext context;
    CUipcMemHandle neighbour;
    CUipcMemHandle handle;
    Export(&neighbour, 11, 256);
    Export(&handle, 22, 256);
    channel.Send(0, &handle, sizeof(handle));
    channel.Await(0);
  });
  const Process importer({}, [&] {
    const CurrentContext context;
    CUdeviceptr address = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&address, ReceiveHandle(channel), kLazy),
              CUDA_SUCCESS);
    EXPECT_EQ(ReadByte(address), 22);
    EXPECT_EQ(ReadByte(address - 1), 11);
    channel.Signal(1);
  });
}

// cuIpcOpenMemHandle: "Calling cuMemFree on an exported memory region before
// calling cuIpcCloseMemHandle in the importing context will result in undefined
// behavior."
TEST(IpcTest, FreeUnderAnImporterIsFound) {
  const Channel channel;
  const Process exporter({}, [&] {
    const CurrentContext context;
    CUipcMemHandle handle;
    const CUdeviceptr address = Export(&handle, 42);
    channel.Send(0, &handle, sizeof(handle));
    channel.Await(0);
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(datasetd_emulated_gpu_counts().num_findings, 1);
    channel.Signal(0);
  });
  const Process importer({}, [&] {
    const CurrentContext context;
    CUdeviceptr address = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&address, ReceiveHandle(channel), kLazy),
              CUDA_SUCCESS);
    channel.Signal(1);
    channel.Await(1);
    // Not what it was.
    EXPECT_NE(ReadByte(address), 42);
  });
}

TEST(IpcTest, ExporterThatWasKilled) {
  const Channel channel;
  Process exporter({}, [&] { RunExporter(channel); });
  const Channel kill_channel;
  const Process importer({}, [&] {
    const CurrentContext context;
    const CUipcMemHandle handle = ReceiveHandle(channel);
    CUdeviceptr address = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&address, handle, kLazy), CUDA_SUCCESS);
    kill_channel.Signal(1);
    kill_channel.Await(1);
    // The mapping stays; nobody can map the memory anew.
    EXPECT_EQ(ReadByte(address), 42);
    EXPECT_EQ(cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    EXPECT_EQ(cuIpcOpenMemHandle(&address, handle, kLazy),
              CUDA_ERROR_INVALID_HANDLE);
  });
  kill_channel.Await(0);
  exporter.Kill();
  kill_channel.Signal(0);
}

TEST(IpcTest, ImporterThatWasKilled) {
  const Channel channel;
  const Channel kill_channel;
  const Process exporter({}, [&] {
    const CurrentContext context;
    CUipcMemHandle handle;
    const CUdeviceptr address = Export(&handle, 42);
    channel.Send(0, &handle, sizeof(handle));
    kill_channel.Await(1);
    // It holds nothing any more.
    EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(datasetd_emulated_gpu_counts().num_findings, 0);
  });
  Process importer({}, [&] {
    const CurrentContext context;
    CUdeviceptr address = 0;
    ASSERT_EQ(cuIpcOpenMemHandle(&address, ReceiveHandle(channel), kLazy),
              CUDA_SUCCESS);
    channel.Signal(1);
    for (;;) pause();
  });
  channel.Await(0);
  importer.Kill();
  kill_channel.Signal(0);
}

// Triton's client: "CUDA IPC APIs require the PID of the source and destination
// to be different", and vLLM #55906: another PID namespace gives
// CUDA_ERROR_INVALID_CONTEXT.
TEST(IpcTest, OtherPidNamespace) {
  const Channel channel;
  const Process exporter({}, [&] { RunExporter(channel); });
  const Process importer({}, [&] {
    const CUipcMemHandle handle = ReceiveHandle(channel);
    // A child unshares, and ends by _exit: LeakSanitizer could start no thread
    // in a process whose namespace has ended.
    const pid_t outside = fork();
    if (outside == 0) {
      if (unshare(CLONE_NEWPID) != 0 &&
          unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        fputs("not run: no PID namespaces here\n", stderr);
        _exit(0);
      }
      // The first child is process 1 of the namespace.
      const pid_t inside = fork();
      if (inside == 0) {
        CurrentContext* const context = new CurrentContext();
        (void)context;
        CUdeviceptr address = 0;
        _exit(cuIpcOpenMemHandle(&address, handle, kLazy) ==
                      CUDA_ERROR_INVALID_CONTEXT
                  ? 0
                  : 1);
      }
      int status = 1;
      _exit(waitpid(inside, &status, 0) == inside && status == 0 ? 0 : 1);
    }
    int status = 1;
    EXPECT_EQ(waitpid(outside, &status, 0), outside);
    EXPECT_EQ(status, 0);
    channel.Signal(1);
    channel.Await(1);
    channel.Signal(1);
  });
}

// cuIpcOpenMemHandle maps memory of a peer, if the two are peers.
TEST(IpcTest, ImporterOnAnotherDevice) {
  for (const bool has_peers : {true, false}) {
    const Channel channel;
    const Environment environment = {{"DEVICES", "2"},
                                     {"PEERS", has_peers ? "1" : "0"}};
    const Process exporter(environment, [&] {
      const CurrentContext context(0);
      CUipcMemHandle handle;
      Export(&handle, 42);
      channel.Send(0, &handle, sizeof(handle));
      channel.Await(0);
    });
    const Process importer(environment, [&] {
      const CurrentContext context(1);
      CUdeviceptr address = 0;
      EXPECT_EQ(cuIpcOpenMemHandle(&address, ReceiveHandle(channel), kLazy),
                has_peers ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
      channel.Signal(1);
    });
  }
}

TEST(IpcTest, IntegratedDevicesShareNoMemory) {
  WithContext({{"ATTRIBUTES", "18=1"}}, [] {
    CUdeviceptr address = 0;
    ASSERT_EQ(cuMemAlloc(&address, 1), CUDA_SUCCESS);
    CUipcMemHandle handle;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_NOT_SUPPORTED);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
