// Questions that only a GPU answers; one JSON object on stdout:
//
//   start            time and memory until the kernels are loaded and warm
//   free             how long giving memory back takes while a stream is busy
//   slab_open        time to open a slab in another process, by size and kind
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
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
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
  run("free", ProbeFree);
  run("release", ProbeRelease);
  run("slab_open", ProbeSlabOpen);
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  if (const std::optional<int> code = datasetd::testing::RunExportPeerIfAsked(
          argc, argv, datasetd::testing::ImportCuda)) {
    return *code;
  }
  return datasetd::testing::Main({argv + 1, argv + argc});
}
