#include "tests/cuda/kernels/cuda_launch.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "cuda/backends.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd::testing {
namespace {

constexpr size_t kAlignment = 256;

// A range of the host's memory and its copy.
class Copy {
 public:
  static absl::StatusOr<Copy> Make(Backend& gpu, Stream& stream,
                                   const MemoryRange& range) {
    const size_t shift = reinterpret_cast<uintptr_t>(range.data) % kAlignment;
    const auto size_bytes = static_cast<size_t>(range.size_bytes);
    DATASETD_ASSIGN_OR_RETURN(auto memory, gpu.Allocate(shift + size_bytes));
    uint8_t* const data = memory->data() + shift;
    DATASETD_RETURN_IF_ERROR(stream.CopyToDevice(
        data, static_cast<const uint8_t*>(range.data), size_bytes));
    return Copy(range, std::move(memory), data);
  }

  // Returns nullptr if the copy has no such byte.
  uint8_t* Find(const void* host) const {
    const auto begin = reinterpret_cast<uintptr_t>(range_.data);
    const auto at = reinterpret_cast<uintptr_t>(host);
    if (at < begin || at - begin >= static_cast<size_t>(range_.size_bytes)) {
      return nullptr;
    }
    return data_ + (at - begin);
  }

  absl::Status CopyBack(Stream& stream) const {
    if (!range_.may_write) return absl::OkStatus();
    return stream.CopyToHost(
        static_cast<uint8_t*>(const_cast<void*>(range_.data)), data_,
        static_cast<size_t>(range_.size_bytes));
  }

 private:
  Copy(const MemoryRange& range, std::unique_ptr<DeviceMemory> memory,
       uint8_t* data)
      : range_(range), memory_(std::move(memory)), data_(data) {}

  MemoryRange range_;
  std::unique_ptr<DeviceMemory> memory_;
  uint8_t* data_;
};

class Copies {
 public:
  absl::Status Add(Backend& gpu, Stream& stream, const MemoryRange& range) {
    DATASETD_ASSIGN_OR_RETURN(Copy copy, Copy::Make(gpu, stream, range));
    copies_.push_back(std::move(copy));
    return absl::OkStatus();
  }

  // Makes `*pointer` point into the copy of what it points to.
  template <typename T>
  absl::Status Translate(T** pointer) const {
    if (*pointer == nullptr) return absl::OkStatus();
    for (const Copy& copy : copies_) {
      if (uint8_t* const found = copy.Find(*pointer)) {
        *pointer = reinterpret_cast<T*>(found);
        return absl::OkStatus();
      }
    }
    return absl::InvalidArgumentError("a pointer to no range of the memory");
  }

  absl::Status CopyBack(Stream& stream) const {
    for (const Copy& copy : copies_) {
      DATASETD_RETURN_IF_ERROR(copy.CopyBack(stream));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<Copy> copies_;
};

}  // namespace

const absl::StatusOr<Backend*>& FirstGpu() {
  // Never destroyed: its driver ends before static objects do.
  static const auto& gpu =
      *new absl::StatusOr<Backend*>([]() -> absl::StatusOr<Backend*> {
        DATASETD_ASSIGN_OR_RETURN(auto backend, CreateBackend("cuda:0", {}));
        return backend.release();
      }());
  return gpu;
}

absl::Status LaunchOnGpu(Backend& gpu, const AugmentProgram& program,
                         const std::vector<BatchTask>& batches,
                         const std::vector<MemoryRange>& memory,
                         int64_t team_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const auto stream, gpu.CreateStream(nullptr));
  Copies copies;
  for (const MemoryRange& range : memory) {
    const bool is_scratch =
        range.data != nullptr && range.data == program.scratch;
    if (range.size_bytes == 0 || is_scratch) continue;
    DATASETD_RETURN_IF_ERROR(copies.Add(gpu, *stream, range));
  }
  auto launched = std::make_unique<AugmentProgram>(program);
  for (int f = 0; f < launched->num_fields; ++f) {
    FieldProgram& field = launched->fields[f];
    DATASETD_RETURN_IF_ERROR(copies.Translate(&field.source));
    DATASETD_RETURN_IF_ERROR(copies.Translate(&field.ragged));
  }
  std::vector<BatchTask> tasks = batches;
  for (BatchTask& task : tasks) {
    DATASETD_RETURN_IF_ERROR(copies.Translate(&task.slot));
    DATASETD_RETURN_IF_ERROR(copies.Translate(&task.indices));
    DATASETD_RETURN_IF_ERROR(copies.Translate(&task.samples));
  }
  std::unique_ptr<DeviceMemory> scratch;
  std::vector<uint8_t> nans;
  ScratchPlan plan = PlanScratch(program, std::max(program.num_teams, 1));
  if (plan.size_bytes > 0) {
    const int64_t more_bytes =
        std::max<int64_t>(0, AlignScratch(team_bytes) - plan.team_bytes);
    plan.team_bytes += more_bytes;
    plan.size_bytes += more_bytes * plan.num_teams;
    nans.assign(static_cast<size_t>(plan.size_bytes), 0xFF);
    DATASETD_ASSIGN_OR_RETURN(scratch, gpu.Allocate(nans.size()));
    DATASETD_RETURN_IF_ERROR(
        stream->CopyToDevice(scratch->data(), nans.data(), nans.size()));
    plan.Give(scratch->data(), launched.get());
  }
  DATASETD_ASSIGN_OR_RETURN(const auto loaded, gpu.Load(*launched));
  DATASETD_RETURN_IF_ERROR(stream->Augment(*loaded, tasks));
  DATASETD_RETURN_IF_ERROR(copies.CopyBack(*stream));
  return stream->Synchronize();
}

}  // namespace datasetd::testing
