// Questions that only a GPU answers; one JSON object on stdout:
//
//   start            time and memory until the kernels are loaded and warm
//   capture          which calls of another thread invalidate a capture
//   sizes            the error for each kind of memory of an absurd size
//   free             how long giving memory back takes while a stream is busy
//   slab_open        time to open a slab in another process, by size and kind
//   read_only_import whether an imported VMM mapping can be made read-only
//   release          a stream memory operation against a host function
//   machine          driver, and what an idle context takes
//
// A part that cannot run has {"not_measured": why}. Parts may be named as
// arguments; without any, all run. Exit code 0 if there is a GPU, else 1.

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cuda/device/backend.h"
#include "cuda/device/cuda_backend.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_exported_memory.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "tests/conformance/export_peer.h"
#include "tests/cuda/cuda_importer.h"

namespace datasetd::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr size_t kMiB = size_t{1} << 20;
constexpr char kReadOnlyVariable[] = "DATASETD_PROBE_READ_ONLY";

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// --- Slabs ---------------------------------------------------------------

constexpr size_t kSlabMiB[] = {2, 16, 64, 256, 1024, 4096, 16384};
constexpr int kOpenRounds = 5;

absl::StatusOr<double> OpenMicroseconds(Backend& backend, ExportKind kind,
                                        size_t size_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const auto small,
                            backend.AllocateExported(2 * kMiB, kind));
  DATASETD_ASSIGN_OR_RETURN(const auto slab,
                            backend.AllocateExported(size_bytes, kind));
  DATASETD_ASSIGN_OR_RETURN(const auto peer, ExportPeer::Start());
  std::vector<double> times;
  for (int i = 0; i < kOpenRounds; ++i) {
    // The first import makes the peer's context; each closes the one before.
    DATASETD_RETURN_IF_ERROR(peer->Import(*small));
    const auto start = Clock::now();
    DATASETD_RETURN_IF_ERROR(peer->Import(*slab));
    times.push_back(MicrosecondsSince(start));
  }
  return Median(times);
}

absl::StatusOr<json> ProbeSlabOpen(Backend& backend) {
  json result;
  for (const ExportKind kind :
       {ExportKind::kCudaIpcHandle, ExportKind::kCudaVmmFd}) {
    json& rows = result[ExportKindName(kind)];
    for (const size_t mib : kSlabMiB) {
      const auto time = OpenMicroseconds(backend, kind, mib * kMiB);
      if (time.ok()) {
        rows.push_back({{"mib", mib}, {"median_us", *time}});
      } else {
        rows.push_back(
            {{"mib", mib},
             {"not_measured", std::string(time.status().message())}});
      }
    }
  }
  return result;
}

// Maps the allocation for reading only.
class ReadOnlyView final : public ImportedMemory {
 public:
  ReadOnlyView(const CudaContext& context, size_t size_bytes)
      : api_(context.api()),
        device_(context.device()),
        size_bytes_(size_bytes) {}
  // The peer ends soon after: its exit unmaps.
  absl::Status Map(int fd) {
    DATASETD_CUDA_RETURN_IF_ERROR(api_.cuMemImportFromShareableHandle(
        &allocation_, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemAddressReserve(&address_, size_bytes_, 0, 0, 0));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemMap(address_, size_bytes_, 0, allocation_, 0));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemSetAccess(address_, size_bytes_, &access, 1));
    return absl::OkStatus();
  }
  absl::Status Read(size_t offset_bytes, absl::Span<uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemcpyDtoH(bytes.data(), address_ + offset_bytes, bytes.size()));
    return absl::OkStatus();
  }
  absl::Status Write(size_t offset_bytes,
                     absl::Span<const uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemcpyHtoD(address_ + offset_bytes, bytes.data(), bytes.size()));
    DATASETD_CUDA_RETURN_IF_ERROR(api_.cuCtxSynchronize());
    return absl::OkStatus();
  }

 private:
  const DriverApi& api_;
  const CUdevice device_;
  const size_t size_bytes_;
  CUmemGenericAllocationHandle allocation_ = 0;
  CUdeviceptr address_ = 0;
};

absl::StatusOr<std::unique_ptr<ImportedMemory>> Import(
    const ExportDescription& description, FileDescriptor file) {
  if (std::getenv(kReadOnlyVariable) == nullptr) {
    return ImportCuda(description, std::move(file));
  }
  DATASETD_ASSIGN_OR_RETURN(const auto context, CudaContext::Retain(0));
  auto view = std::make_unique<ReadOnlyView>(*context, description.size_bytes);
  DATASETD_RETURN_IF_ERROR(view->Map(file.get()));
  return view;
}

absl::StatusOr<json> ProbeReadOnlyImport(Backend& backend) {
  DATASETD_ASSIGN_OR_RETURN(
      const auto slab,
      backend.AllocateExported(2 * kMiB, ExportKind::kCudaVmmFd));
  setenv(kReadOnlyVariable, "1", 1);
  auto peer = ExportPeer::Start();
  unsetenv(kReadOnlyVariable);
  if (!peer.ok()) return peer.status();
  json result;
  const absl::Status mapped = (*peer)->Import(*slab);
  result["map"] = mapped.ToString();
  if (!mapped.ok()) return result;
  result["read"] = (*peer)->Read(0, 16).status().ToString();
  const uint8_t bytes[16] = {1};
  result["write"] = (*peer)->Write(0, bytes).ToString();
  return result;
}

// --- Release -------------------------------------------------------------

constexpr int kReleases = 2000;

class ReleasePage {
 public:
  absl::Status Init(const DriverApi& api) {
    const int fd = memfd_create("datasetd-probe", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, getpagesize()) != 0) {
      return absl::InternalError("memfd_create or ftruncate failed");
    }
    void* const data = mmap(nullptr, getpagesize(), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED) return absl::InternalError("mmap failed");
    word_ = static_cast<volatile uint64_t*>(data);
    DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemHostRegister(
        data, getpagesize(), CU_MEMHOSTREGISTER_DEVICEMAP));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuMemHostGetDevicePointer(&address_, data, 0));
    return absl::OkStatus();
  }
  volatile uint64_t* word() const { return word_; }
  CUdeviceptr address() const { return address_; }

 private:
  volatile uint64_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
};

struct HostRelease {
  volatile uint64_t* word;
  uint64_t value;
};

void RunHostRelease(void* argument) {
  const auto* const release = static_cast<HostRelease*>(argument);
  *release->word = release->value;
}

// `release(i)` makes the word i + 1. Latency: from the call until the word is
// seen. Call: what the calling thread spends. Stream: what one release between
// two small memsets adds to each.
absl::StatusOr<json> MeasureRelease(
    const DriverApi& api, const ReleasePage& page, CUstream stream,
    CUdeviceptr scratch, const std::function<absl::Status(uint64_t)>& release) {
  std::vector<double> latencies, calls;
  for (uint64_t i = 0; i < kReleases; ++i) {
    const auto start = Clock::now();
    DATASETD_RETURN_IF_ERROR(release(i));
    calls.push_back(MicrosecondsSince(start));
    while (*page.word() != i + 1) {
      if (MicrosecondsSince(start) > 1e6) {
        return absl::DeadlineExceededError("the word was not written in 1 s");
      }
    }
    latencies.push_back(MicrosecondsSince(start));
  }
  double per_memset[2] = {};
  for (const bool with_release : {false, true}) {
    DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(stream));
    const auto start = Clock::now();
    for (uint64_t i = 0; i < kReleases; ++i) {
      DATASETD_CUDA_RETURN_IF_ERROR(
          api.cuMemsetD8Async(scratch, 0, 4096, stream));
      if (with_release) DATASETD_RETURN_IF_ERROR(release(i));
    }
    DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(stream));
    per_memset[with_release] = MicrosecondsSince(start) / kReleases;
  }
  return json{{"latency_median_us", Median(latencies)},
              {"call_median_us", Median(calls)},
              {"added_to_stream_us", per_memset[1] - per_memset[0]}};
}

absl::StatusOr<json> ProbeRelease(Backend& backend) {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const driver, GetDriverApi());
  const DriverApi& api = *driver;
  DATASETD_ASSIGN_OR_RETURN(const auto memory, backend.Allocate(4096));
  const auto scratch = reinterpret_cast<CUdeviceptr>(memory->data());
  ReleasePage page;
  DATASETD_RETURN_IF_ERROR(page.Init(api));
  CUstream stream = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  json result;
  const auto written = MeasureRelease(
      api, page, stream, scratch, [&](uint64_t i) -> absl::Status {
        DATASETD_CUDA_RETURN_IF_ERROR(
            api.cuStreamWriteValue64(stream, page.address(), i + 1, 0));
        return absl::OkStatus();
      });
  result["stream_memory_operation"] =
      written.ok() ? *written : json{{"failed", written.status().ToString()}};
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(stream));
  *page.word() = 0;
  std::vector<HostRelease> releases;
  for (uint64_t i = 0; i < kReleases; ++i) {
    releases.push_back({page.word(), i + 1});
  }
  const auto measured = MeasureRelease(
      api, page, stream, scratch, [&](uint64_t i) -> absl::Status {
        DATASETD_CUDA_RETURN_IF_ERROR(
            api.cuLaunchHostFunc(stream, RunHostRelease, &releases[i]));
        return absl::OkStatus();
      });
  result["host_function"] =
      measured.ok() ? *measured
                    : json{{"failed", measured.status().ToString()}};
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamDestroy(stream));
  return result;
}

// --- Start ---------------------------------------------------------------

// REQUIRES: nothing has created a backend in this process.
absl::StatusOr<json> ProbeStart(std::unique_ptr<Backend>* backend) {
  DATASETD_ASSIGN_OR_RETURN(const auto context, CudaContext::Retain(0));
  const DriverApi& api = context->api();
  size_t before = 0, after = 0, total = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemGetInfo(&before, &total));
  const auto start = Clock::now();
  DATASETD_ASSIGN_OR_RETURN(*backend, CreateCudaBackend({}));
  const double seconds = MicrosecondsSince(start) * 1e-6;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemGetInfo(&after, &total));
  return json{
      {"seconds", seconds},
      {"bytes", static_cast<int64_t>(before) - static_cast<int64_t>(after)}};
}

// --- Capture -------------------------------------------------------------

// Runs `call` on a thread that permits unsafe calls, as the client's does,
// while this thread captures a stream. Says what it returned and what became of
// the capture.
json CallInCapture(const CudaContext& context, CUstream stream,
                   const std::function<CUresult()>& call) {
  const DriverApi& api = context.api();
  if (api.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) !=
      CUDA_SUCCESS) {
    return {{"not_measured", "cuStreamBeginCapture failed"}};
  }
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    context.MakeCurrentOrLog();
    api.cuThreadExchangeStreamCaptureMode(&mode);
    result = call();
  }).join();
  CUgraph graph = nullptr;
  const CUresult ended = api.cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) api.cuGraphDestroy(graph);
  return {{"result", CudaStatus(result, "call").ToString()},
          {"is_capture_valid", ended == CUDA_SUCCESS}};
}

absl::StatusOr<json> ProbeCapture(Backend& /*backend*/) {
  DATASETD_ASSIGN_OR_RETURN(const auto context, CudaContext::Retain(0));
  const DriverApi& api = context->api();
  CUstream captured = nullptr;
  CUstream other = nullptr;
  CUevent event = nullptr;
  for (CUstream* const stream : {&captured, &other}) {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0));
  }
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ReleasePage page;
  DATASETD_RETURN_IF_ERROR(page.Init(api));
  DATASETD_ASSIGN_OR_RETURN(auto slab,
                            CudaVmmMemory::Create(*context, 2 * kMiB));
  json result;
  const auto run = [&](const char* name,
                       const std::function<CUresult()>& call) {
    result[name] = CallInCapture(*context, captured, call);
  };
  run("cuCtxSynchronize", [&] { return api.cuCtxSynchronize(); });
  run("cuStreamWriteValue64",
      [&] { return api.cuStreamWriteValue64(other, page.address(), 1, 0); });
  run("cuLaunchHostFunc", [&] {
    return api.cuLaunchHostFunc(
        other, [](void*) {}, nullptr);
  });
  run("cuStreamWaitEvent", [&] {
    const CUresult recorded = api.cuEventRecord(event, other);
    return recorded != CUDA_SUCCESS ? recorded
                                    : api.cuStreamWaitEvent(other, event, 0);
  });
  run("cuMemAlloc", [&] {
    CUdeviceptr memory = 0;
    const CUresult allocated = api.cuMemAlloc(&memory, 4096);
    return allocated != CUDA_SUCCESS ? allocated : api.cuMemFree(memory);
  });
  run("cuMemUnmap", [&] {
    slab.reset();
    return CUDA_SUCCESS;
  });
  run("cuMemHostUnregister", [&] {
    return api.cuMemHostUnregister(const_cast<uint64_t*>(page.word()));
  });
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuEventDestroy(event));
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamDestroy(other));
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamDestroy(captured));
  return result;
}

// --- Sizes ---------------------------------------------------------------

// RESOURCE_EXHAUSTED is due.
absl::StatusOr<json> ProbeSizes(Backend& backend) {
  constexpr size_t kAbsurdBytes = size_t{1} << 50;
  json result = {
      {"device", backend.Allocate(kAbsurdBytes).status().ToString()},
      {"host", backend.AllocateHost(kAbsurdBytes).status().ToString()}};
  for (const ExportKind kind : backend.export_kinds()) {
    result[ExportKindName(kind)] =
        backend.AllocateExported(kAbsurdBytes, kind).status().ToString();
  }
  return result;
}

// --- Free ----------------------------------------------------------------

constexpr int kMemsets = 30;

absl::StatusOr<json> ProbeFree(Backend& backend) {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const driver, GetDriverApi());
  const DriverApi& api = *driver;
  DATASETD_ASSIGN_OR_RETURN(const auto busy, backend.Allocate(64 * kMiB));
  DATASETD_ASSIGN_OR_RETURN(auto memory, backend.Allocate(64 * kMiB));
  std::vector<std::pair<const char*, std::function<void()>>> frees;
  frees.emplace_back("device", [&memory] { memory.reset(); });
  std::vector<std::unique_ptr<ExportedMemory>> slabs;
  for (const ExportKind kind : backend.export_kinds()) {
    DATASETD_ASSIGN_OR_RETURN(auto slab,
                              backend.AllocateExported(64 * kMiB, kind));
    slabs.push_back(std::move(slab));
    frees.emplace_back(ExportKindName(kind),
                       [&slabs, i = slabs.size() - 1] { slabs[i].reset(); });
  }
  CUstream stream = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  json result;
  for (const auto& [name, free] : frees) {
    for (int i = 0; i < kMemsets; ++i) {
      DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemsetD8Async(
          reinterpret_cast<CUdeviceptr>(busy->data()), 0, 64 * kMiB, stream));
    }
    const auto start = Clock::now();
    free();
    const double free_us = MicrosecondsSince(start);
    DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(stream));
    result[name] = {{"free_us", free_us},
                    {"work_left_us", MicrosecondsSince(start) - free_us}};
  }
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamDestroy(stream));
  return result;
}

// --- Machine -------------------------------------------------------------

absl::StatusOr<json> ProbeMachine(Backend& backend) {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  json result = {{"device", backend.info().description}};
  int version = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuDriverGetVersion(&version));
  result["driver_api_version"] = version;
  result["toolkit_version"] = CUDA_VERSION;
  DATASETD_ASSIGN_OR_RETURN(
      const auto slab,
      backend.AllocateExported(2 * kMiB, backend.export_kinds().front()));
  DATASETD_ASSIGN_OR_RETURN(const auto peer, ExportPeer::Start());
  size_t before = 0, after = 0, total = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuMemGetInfo(&before, &total));
  DATASETD_RETURN_IF_ERROR(peer->Import(*slab));
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuMemGetInfo(&after, &total));
  result["total_bytes"] = total;
  result["context_bytes"] =
      static_cast<int64_t>(before) - static_cast<int64_t>(after);
  return result;
}

int Main(const std::vector<std::string>& parts) {
  std::unique_ptr<Backend> backend;
  const absl::StatusOr<json> start = ProbeStart(&backend);
  if (!start.ok()) {
    std::puts(json{{"not_measured", std::string(start.status().message())}}
                  .dump()
                  .c_str());
    return 1;
  }
  json result = {{"start", *start}};
  const auto run = [&](const char* name, auto probe) {
    if (!parts.empty() &&
        std::find(parts.begin(), parts.end(), name) == parts.end()) {
      return;
    }
    const absl::StatusOr<json> answer = probe(*backend);
    result[name] = answer.ok()
                       ? *answer
                       : json{{"not_measured", answer.status().ToString()}};
  };
  run("machine", ProbeMachine);
  run("sizes", ProbeSizes);
  run("capture", ProbeCapture);
  run("free", ProbeFree);
  run("release", ProbeRelease);
  run("read_only_import", ProbeReadOnlyImport);
  run("slab_open", ProbeSlabOpen);
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  if (const std::optional<int> code = datasetd::testing::RunExportPeerIfAsked(
          argc, argv, datasetd::testing::Import)) {
    return *code;
  }
  return datasetd::testing::Main({argv + 1, argv + argc});
}
