// The augment kernel in the trainer's own process, over a dataset imported from
// the daemon's, against the daemon's kernel; one JSON object on stdout.
//
// Two processes: this one owns the samples, as a daemon does; its child maps
// them by IPC handle, as a trainer would. Each runs the kernel of CIFAR-10's
// crop, flip and normalise on them, alone and both at once: microseconds from
// launch to completion of a batch.

#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "cuda/device/cuda_backend.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/augment_case.h"

namespace datasetd::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kNumResident = 50000;
constexpr int kSampleBytes = 32 * 32 * 3;
constexpr int kBatchSizes[] = {512, 2000};
constexpr int kBatches = 2000;

absl::StatusOr<double> BatchMicroseconds(Backend& backend,
                                         const uint8_t* samples,
                                         int batch_size) {
  const AugmentCase test({FieldBuilder(32, 32, 3)
                              .Out(Dtype::kFloat16, Layout::kNhwc)
                              .PadFill(4, {0.0f, 0.0f, 0.0f})
                              .RandomCrop(32, 32)
                              .HorizontalFlip(0.5f)
                              .Divide(255.0f)
                              .Normalize()
                              .Build()},
                         batch_size, 1);
  AugmentProgram program = test.program();
  program.fields[0].source = samples;
  DATASETD_ASSIGN_OR_RETURN(const auto loaded, backend.Load(program));
  DATASETD_ASSIGN_OR_RETURN(const auto slot,
                            backend.Allocate(test.slot_bytes()));
  DATASETD_ASSIGN_OR_RETURN(const auto stream, backend.CreateStream(nullptr));
  std::vector<int64_t> order(static_cast<size_t>(batch_size));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = (static_cast<int64_t>(i) * 2654435761) % kNumResident;
  }
  DATASETD_ASSIGN_OR_RETURN(const auto indices,
                            backend.Allocate(order.size() * sizeof(int64_t)));
  BatchTask task = {};
  task.slot = slot->data();
  task.indices = reinterpret_cast<const int64_t*>(indices->data());
  task.num_samples = batch_size;
  std::vector<double> times;
  for (int i = -50; i < kBatches; ++i) {
    task.epoch = static_cast<uint64_t>(i + 50);
    const auto start = Clock::now();
    DATASETD_RETURN_IF_ERROR(stream->CopyToDevice(
        indices->data(), reinterpret_cast<const uint8_t*>(order.data()),
        order.size() * sizeof(int64_t)));
    DATASETD_RETURN_IF_ERROR(
        stream->Augment(*loaded, absl::MakeConstSpan(&task, 1)));
    DATASETD_RETURN_IF_ERROR(stream->Synchronize());
    if (i < 0) continue;  // warms up
    times.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

absl::StatusOr<json> Measure(Backend& backend, const uint8_t* samples) {
  json result;
  for (const int batch_size : kBatchSizes) {
    DATASETD_ASSIGN_OR_RETURN(
        result["batch_" + std::to_string(batch_size) + "_median_us"],
        BatchMicroseconds(backend, samples, batch_size));
  }
  return result;
}

absl::StatusOr<json> RunTrainer(const std::string& handle_hex) {
  const std::string bytes = absl::HexStringToBytes(handle_hex);
  CUipcMemHandle handle;
  if (bytes.size() != sizeof(handle)) {
    return absl::InvalidArgumentError("the IPC handle has another size");
  }
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  DATASETD_ASSIGN_OR_RETURN(const auto backend, CreateCudaBackend({}));
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  CUdeviceptr samples = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuIpcOpenMemHandle(
      &samples, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  std::puts("ready");
  std::fflush(stdout);
  return Measure(*backend, reinterpret_cast<const uint8_t*>(samples));
}

// The child, and its two lines of output.
class Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Start(
      absl::Span<const uint8_t> handle) {
    int ends[2];
    if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    std::string program = "/proc/self/exe";
    std::string hex = absl::BytesToHexString(absl::string_view(
        reinterpret_cast<const char*>(handle.data()), handle.size()));
    char* arguments[] = {program.data(), hex.data(), nullptr};
    pid_t pid = -1;
    const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                  arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return absl::ErrnoToStatus(error, "posix_spawn");
    }
    return std::unique_ptr<Trainer>(new Trainer(pid, ends[0]));
  }
  ~Trainer() {
    std::fclose(output_);
    waitpid(pid_, nullptr, 0);
  }

  // Until it has its context and the samples, or has failed.
  void AwaitReady() { first_line_ = ReadLine(); }

  json Answer() {
    const std::string line =
        first_line_ == "ready\n" ? ReadLine() : first_line_;
    json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
    return answer.is_object() ? answer
                              : json{{"not_measured", "the child ended"}};
  }

 private:
  Trainer(pid_t pid, int output) : pid_(pid), output_(fdopen(output, "r")) {}

  std::string ReadLine() {
    char line[4096];
    return std::fgets(line, sizeof(line), output_) == nullptr ? "" : line;
  }

  const pid_t pid_;
  std::FILE* const output_;
  std::string first_line_;
};

absl::StatusOr<json> RunOwner() {
  DATASETD_ASSIGN_OR_RETURN(const auto backend, CreateCudaBackend({}));
  DATASETD_ASSIGN_OR_RETURN(
      const auto samples,
      backend->AllocateExported(size_t{kNumResident} * kSampleBytes,
                                ExportKind::kCudaIpcHandle));
  json result;
  DATASETD_ASSIGN_OR_RETURN(result["daemon_alone"],
                            Measure(*backend, samples->data()));
  {
    DATASETD_ASSIGN_OR_RETURN(const auto trainer,
                              Trainer::Start(samples->ipc_handle()));
    trainer->AwaitReady();
    result["trainer_alone"] = trainer->Answer();
  }
  DATASETD_ASSIGN_OR_RETURN(const auto trainer,
                            Trainer::Start(samples->ipc_handle()));
  trainer->AwaitReady();
  json& both = result["both_at_once"];
  DATASETD_ASSIGN_OR_RETURN(both["daemon"], Measure(*backend, samples->data()));
  both["trainer"] = trainer->Answer();
  return result;
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  const absl::StatusOr<nlohmann::json> answer =
      argc > 1 ? datasetd::testing::RunTrainer(argv[1])
               : datasetd::testing::RunOwner();
  const nlohmann::json result =
      answer.ok()
          ? *answer
          : nlohmann::json{{"not_measured", answer.status().ToString()}};
  std::puts(result.dump().c_str());
  return answer.ok() ? 0 : 1;
}
