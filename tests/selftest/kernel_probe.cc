// How long the kernels take on the workloads of docs/kernel-cost.md; one JSON
// object on stdout.
//
//   kernel_probe [--launches=N] [WORKLOAD...]
//
// Launches follow each other on one stream; the time is that of all over their
// number. Of each workload: launches of enough samples that every SM is at
// work, and of one batch of 32 to 512, as feeds make. With --launches=1 nothing
// warms up, for a profiler, and there are the large ones alone. Exit code 0 if
// there is a GPU, else 1.

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "cuda/device/cuda_backend.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/params.h"
#include "tests/benchmarks/kernel_cost/workloads.h"

namespace datasetd::testing {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// More than a GPU's L2 cache holds.
constexpr int64_t kResidentBytes = int64_t{256} << 20;
constexpr int kBatches = 4;
constexpr int kSmallLaunches[] = {32, 64, 128, 256, 512};

struct Shape {
  int batch_size;
  int64_t num_resident;
};

Shape ShapeOf(const FieldProgram& field) {
  return {.batch_size = field.out_height >= 224 ? 256 : 2048,
          .num_resident = kResidentBytes / field.sample_stride_bytes};
}

int64_t BytesOut(const FieldProgram& field) {
  const int channels =
      field.num_steps > 0 ? field.out_channels : field.channels;
  return int64_t{channels} * field.out_height * field.out_width *
         DtypeSizeBytes(field.out_dtype);
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::StatusOr<double> CopyBytesPerSecond(Backend& backend) {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kCopies = 20;
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  DATASETD_ASSIGN_OR_RETURN(const auto from, backend.Allocate(kBytes));
  DATASETD_ASSIGN_OR_RETURN(const auto to, backend.Allocate(kBytes));
  Clock::time_point start;
  for (int i = -2; i < kCopies; ++i) {
    if (i == 0) {
      DATASETD_CUDA_RETURN_IF_ERROR(api->cuCtxSynchronize());
      start = Clock::now();
    }
    DATASETD_CUDA_RETURN_IF_ERROR(api->cuMemcpyDtoDAsync(
        reinterpret_cast<CUdeviceptr>(to->data()),
        reinterpret_cast<CUdeviceptr>(from->data()), kBytes, nullptr));
  }
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuCtxSynchronize());
  // Read once and written once.
  return 2.0 * kBytes * kCopies / SecondsSince(start);
}

// Returns the seconds of a launch.
absl::StatusOr<double> TimeLaunches(Stream& stream,
                                    const LoadedProgram& program,
                                    absl::Span<BatchTask> tasks,
                                    int num_launches) {
  Clock::time_point start = Clock::now();
  for (int i = num_launches > 1 ? -3 : 0; i < num_launches; ++i) {
    if (i == 0) {
      DATASETD_RETURN_IF_ERROR(stream.Synchronize());
      start = Clock::now();
    }
    for (BatchTask& task : tasks) task.epoch = static_cast<uint64_t>(i + 3);
    DATASETD_RETURN_IF_ERROR(stream.Augment(program, tasks));
  }
  DATASETD_RETURN_IF_ERROR(stream.Synchronize());
  return SecondsSince(start) / num_launches;
}

// Returns the rows of a workload.
absl::StatusOr<ordered_json> Measure(Backend& backend, const Workload& workload,
                                     int num_launches) {
  auto program = std::make_unique<AugmentProgram>();
  program->seed = 7;
  program->indices_offset_bytes = -1;
  program->num_fields = 1;
  FieldProgram& field = program->fields[0];
  DATASETD_ASSIGN_OR_RETURN(field, Compile(workload));
  const Shape shape = ShapeOf(field);
  const int64_t slot_bytes = BytesOut(field) * shape.batch_size;

  DATASETD_ASSIGN_OR_RETURN(const auto stream, backend.CreateStream(nullptr));
  DATASETD_ASSIGN_OR_RETURN(const auto source,
                            backend.Allocate(kResidentBytes));
  std::mt19937_64 engine(1);
  std::vector<uint64_t> random(kResidentBytes / sizeof(uint64_t));
  std::generate(random.begin(), random.end(), std::ref(engine));
  DATASETD_RETURN_IF_ERROR(stream->CopyToDevice(
      source->data(), reinterpret_cast<const uint8_t*>(random.data()),
      kResidentBytes));
  std::vector<int64_t> order(static_cast<size_t>(kBatches * shape.batch_size));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int64_t>(i) * 2654435761 % shape.num_resident;
  }
  const size_t order_bytes = order.size() * sizeof(int64_t);
  DATASETD_ASSIGN_OR_RETURN(const auto indices, backend.Allocate(order_bytes));
  DATASETD_RETURN_IF_ERROR(stream->CopyToDevice(
      indices->data(), reinterpret_cast<const uint8_t*>(order.data()),
      order_bytes));
  DATASETD_RETURN_IF_ERROR(stream->Synchronize());

  SetSource(source->data(), &field);
  const ScratchPlan scratch_plan =
      PlanScratch(*program, backend.max_teams(TeamScratchBytes(*program)));
  std::unique_ptr<DeviceMemory> scratch;
  if (scratch_plan.size_bytes > 0) {
    DATASETD_ASSIGN_OR_RETURN(scratch,
                              backend.Allocate(scratch_plan.size_bytes));
    scratch_plan.Give(scratch->data(), program.get());
  }
  DATASETD_ASSIGN_OR_RETURN(const auto loaded, backend.Load(*program));
  DATASETD_ASSIGN_OR_RETURN(const auto slots,
                            backend.Allocate(slot_bytes * kBatches));
  // Float16 and float32 of this are no values of images.
  std::vector<uint8_t> last_sample(BytesOut(field), 0xFF);
  const std::vector<uint8_t> poison = last_sample;
  uint8_t* const last_place =
      slots->data() + slot_bytes * kBatches - BytesOut(field);
  DATASETD_RETURN_IF_ERROR(
      stream->CopyToDevice(last_place, poison.data(), poison.size()));
  std::vector<BatchTask> tasks;
  for (int i = 0; i < kBatches; ++i) {
    tasks.push_back(
        {.slot = slots->data() + i * slot_bytes,
         .indices = reinterpret_cast<const int64_t*>(indices->data()) +
                    i * shape.batch_size,
         .num_samples = shape.batch_size});
  }
  DATASETD_ASSIGN_OR_RETURN(
      const double seconds,
      TimeLaunches(*stream, *loaded, absl::MakeSpan(tasks), num_launches));
  DATASETD_RETURN_IF_ERROR(
      stream->CopyToHost(last_sample.data(), last_place, last_sample.size()));
  DATASETD_RETURN_IF_ERROR(stream->Synchronize());
  if (last_sample == poison) {
    return absl::InternalError(
        absl::StrCat(workload.name, ": the launch wrote nothing"));
  }
  DATASETD_ASSIGN_OR_RETURN(const double read_share, ReadShare(field));
  // What a crop leaves out is not read.
  const double sample_bytes =
      read_share * static_cast<double>(field.sample_stride_bytes) +
      static_cast<double>(BytesOut(field));
  ordered_json rows = ordered_json::array();
  const auto add = [&](int64_t num_samples, double launch_seconds) {
    const double samples = static_cast<double>(num_samples);
    rows.push_back(
        {{"workload", workload.name},
         {"samples_per_launch", num_samples},
         {"launch_us", launch_seconds * 1e6},
         {"ns_per_sample", launch_seconds * 1e9 / samples},
         {"bytes_per_second", sample_bytes * samples / launch_seconds}});
  };
  add(int64_t{kBatches} * shape.batch_size, seconds);
  if (num_launches == 1) return rows;
  for (const int num_samples : kSmallLaunches) {
    // The slots stand one after another.
    BatchTask task = tasks[0];
    task.num_samples = num_samples;
    DATASETD_ASSIGN_OR_RETURN(
        const double small,
        TimeLaunches(*stream, *loaded, absl::MakeSpan(&task, 1), num_launches));
    add(num_samples, small);
  }
  return rows;
}

absl::StatusOr<ordered_json> MeasureAll(const std::vector<std::string>& names,
                                        int num_launches) {
  DATASETD_ASSIGN_OR_RETURN(const auto backend, CreateCudaBackend({}));
  ordered_json result;
  double copy = 0;
  if (num_launches > 1) {
    DATASETD_ASSIGN_OR_RETURN(copy, CopyBytesPerSecond(*backend));
    result["copy_bytes_per_second"] = copy;
  }
  for (const Workload& workload : CostWorkloads()) {
    if (!names.empty() &&
        std::find(names.begin(), names.end(), workload.name) == names.end()) {
      continue;
    }
    DATASETD_ASSIGN_OR_RETURN(const ordered_json rows,
                              Measure(*backend, workload, num_launches));
    for (ordered_json row : rows) {
      if (copy > 0) {
        row["share_of_copy"] = row["bytes_per_second"].get<double>() / copy;
      }
      result["rows"].push_back(std::move(row));
    }
  }
  return result;
}

int Main(std::vector<std::string> arguments) {
  int num_launches = 20;
  if (!arguments.empty()) {
    absl::string_view first = arguments.front();
    if (absl::ConsumePrefix(&first, "--launches=")) {
      if (!absl::SimpleAtoi(first, &num_launches) || num_launches < 1) {
        std::fprintf(stderr,
                     "kernel_probe: --launches takes a number from 1 on\n");
        return 2;
      }
      arguments.erase(arguments.begin());
    }
  }
  const absl::StatusOr<ordered_json> answer =
      MeasureAll(arguments, num_launches);
  const ordered_json result =
      answer.ok() ? *answer
                  : ordered_json{{"not_measured", answer.status().ToString()}};
  std::puts(result.dump().c_str());
  return answer.ok() ? 0 : 1;
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  return datasetd::testing::Main({argv + 1, argv + argc});
}
