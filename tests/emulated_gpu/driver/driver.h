// The state of the emulated driver in this process, and what every entry point
// does before and after its work.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_DRIVER_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_DRIVER_H_

#include <cuda.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/emulated_gpu/driver/backing.h"
#include "tests/emulated_gpu/driver/journal.h"
#include "tests/emulated_gpu/driver/kernel_engine.h"
#include "tests/emulated_gpu/driver/memory_ledger.h"
#include "tests/emulated_gpu/driver/memory_map.h"
#include "tests/emulated_gpu/driver/settings.h"
#include "tests/emulated_gpu/driver/stream.h"

namespace datasetd::emulated_driver {

// Memory of cuMemAlloc is cut from blocks of this size, and cuMemCreate gives
// multiples of it.
inline constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

inline uint64_t RoundUp(uint64_t size_bytes, uint64_t multiple) {
  return (size_bytes + multiple - 1) / multiple * multiple;
}

// Memory from which cuMemAlloc cuts allocations. Goes with the last of them.
struct Block {
  std::shared_ptr<Backing> backing;
  AddressRange range;
  uint64_t used_bytes = 0;
  int num_allocations = 0;
  bool is_exported = false;
};

struct Context : ContextState {
  std::shared_ptr<Block> open_block;
  // By address.
  std::map<uint64_t, std::shared_ptr<Block>> allocations;
  uint64_t local_memory_bytes = 0;
  std::set<int> peers;
};

struct Device {
  DeviceSettings settings;
  // Null while nobody has retained it.
  std::shared_ptr<Context> primary;
  int num_retained = 0;
  unsigned int flags = 0;
};

struct Function;

// An image; its PTX is parsed when a function is first asked for.
struct Module {
  Context* context = nullptr;
  std::shared_ptr<const KernelModule> kernels;
  std::map<std::string, std::shared_ptr<Function>> functions;
};

struct Function {
  Module* module = nullptr;
  KernelInfo info;
  int ptx_version = 0;
};

// A physical allocation of cuMemCreate, or an imported one.
struct Allocation {
  std::shared_ptr<Backing> backing;
  // An index of the visible devices.
  int device = 0;
  CUmemAllocationProp properties = {};
  // Bytes taken of the device's memory: 0 if another process made it.
  uint64_t charged_bytes = 0;
  int num_handles = 0;
  int num_mappings = 0;
};

struct Mapping {
  uint64_t handle = 0;
  uint64_t alias = 0;
};

// Memory of another process, by cuIpcOpenMemHandle.
struct Opened {
  uint64_t context = 0;
  uint64_t offset_bytes = 0;
  std::shared_ptr<Backing> backing;
  AddressRange range;
  int num_opens = 0;
};

enum Rule : unsigned {
  kNoRule = 0,
  // Works before cuInit.
  kAnyTime = 1,
  // Needs a current context.
  kNeedsContext = 2,
  // cuThreadExchangeStreamCaptureMode: "potentially unsafe API calls".
  kUnsafeInCapture = 4,
};

// A call that runs now.
struct Call {
  std::unique_lock<std::mutex> lock;
  // With kNeedsContext; else what is current, or null.
  Context* context = nullptr;
  // For the log.
  std::string detail;
};

class Driver {
 public:
  static Driver& Get();

  // Checks what `rules` ask for, runs `body` with the mutex, and logs.
  CUresult Run(const char* function, unsigned rules,
               const std::function<CUresult(Call&)>& body);

  CUresult Init();
  // From now on every call returns CUDA_ERROR_DEINITIALIZED, and no work
  // starts.
  static void EndProcess();

  // Null for a stream that does not exist. 0, CU_STREAM_LEGACY and
  // CU_STREAM_PER_THREAD are of the call's context.
  std::shared_ptr<Stream> FindStream(Call& call, CUstream stream);
  std::shared_ptr<Stream> LegacyStream(Context& context);

  // Gives the stream an operation, in step with the legacy stream, or adds it
  // to the stream's capture. Sets `completion` in the first case.
  CUresult Enqueue(Stream& stream, Operation operation,
                   std::shared_ptr<Completion>* completion = nullptr,
                   std::vector<std::shared_ptr<Completion>> waits = {});

  // Returns the context's error.
  CUresult Await(Call& call, const ContextState& context,
                 const std::vector<std::shared_ptr<Completion>>& completions);
  // Waits for all streams.
  CUresult AwaitContext(Call& call, Context& context);
  bool HasWork(const Context& context) const;
  // Whether threads that wait for the device keep a core busy: they do unless
  // the flags of the primary context ask for another way.
  bool Spins(int device) const {
    return (devices[device].flags &
            (CU_CTX_SCHED_YIELD | CU_CTX_SCHED_BLOCKING_SYNC)) == 0;
  }

  // Invalidates what the call may not run beside.
  CUresult CheckUnsafe();
  void Invalidate(Capture& capture);
  bool HasCapture(const Context& context) const;

  // Memory of a device; false if there is not enough.
  bool Charge(int device, uint64_t size_bytes);
  void Discharge(int device, uint64_t size_bytes);
  uint64_t FreeBytes(int device) const;
  // Frees what cuMemAlloc returned. REQUIRES: it is an allocation.
  void FreeAllocation(Context& context, uint64_t address);
  void CloseOpened(uint64_t address);
  void DropAllocation(uint64_t handle);

  // Ends it with all that belongs to it.
  void DestroyContext(Call& call, Context& context);
  void DestroyStream(const std::shared_ptr<Stream>& stream);

  uint64_t NewHandle() { return next_handle_ += 16; }
  int VisibleDevice(const Uuid& uuid) const;

  Scheduling scheduling;
  Settings settings;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<MemoryMap> memory;
  std::unique_ptr<MemoryLedger> ledger;
  // The visible ones.
  std::vector<Device> devices;
  std::map<uint64_t, std::shared_ptr<Context>> contexts;
  std::map<uint64_t, std::shared_ptr<Stream>> streams;
  std::map<uint64_t, std::shared_ptr<Event>> events;
  std::map<uint64_t, std::shared_ptr<Module>> modules;
  std::map<uint64_t, std::shared_ptr<Function>> functions;
  std::map<uint64_t, std::shared_ptr<Graph>> graphs;
  std::map<uint64_t, std::shared_ptr<Graph>> executable_graphs;
  std::map<uint64_t, Allocation> allocations;
  // By address: sizes and aliases of reservations; mappings.
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> reservations;
  std::map<uint64_t, Mapping> mappings;
  std::map<uint64_t, Opened> opened;
  std::vector<std::shared_ptr<Capture>> captures;
  bool holds_new_streams = false;
  int num_unmapped_under_work = 0;

 private:
  Driver();
  CUresult CheckProcess(unsigned rules) const;
  CUresult FindContext(unsigned rules, Call& call);

  // The process that called cuInit; 0 before.
  std::atomic<pid_t> pid_ = 0;
  std::atomic<bool> is_ended_ = false;
  // Handles cannot be read, and none comes twice.
  uint64_t next_handle_ = 0x5d000000;
};

inline bool IsDevice(CUdevice device) {
  return device >= 0 && device < static_cast<int>(Driver::Get().devices.size());
}

// The contexts of this thread; the last one is current.
std::vector<uint64_t>& ContextStack();
CUstreamCaptureMode& ThreadCaptureMode();

// The name under which cuda.h declares a function: "cuMemAlloc_v2".
#define DATASETD_SYMBOL(function) DATASETD_SYMBOL_TEXT(function)
#define DATASETD_SYMBOL_TEXT(function) #function

template <typename Handle>
Handle ToHandle(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}
template <typename Handle>
uint64_t FromHandle(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_DRIVER_H_
