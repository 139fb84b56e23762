#include "tests/emulated_gpu/driver/controls.h"

#include <mutex>

#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {

extern "C" {

DatasetdEmulatedGpuCounts datasetd_emulated_gpu_counts(void) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.scheduling.mutex);
  DatasetdEmulatedGpuCounts counts = {};
  for (const auto& [id, context] : driver.contexts) {
    if (context->is_destroyed) continue;
    ++counts.num_contexts;
    counts.num_allocations += static_cast<int>(context->allocations.size());
  }
  counts.num_streams = static_cast<int>(driver.streams.size());
  counts.num_events = static_cast<int>(driver.events.size());
  counts.num_allocations += static_cast<int>(driver.allocations.size());
  counts.num_mappings =
      static_cast<int>(driver.mappings.size() + driver.opened.size());
  counts.num_pinned = driver.memory->Count(RegionKind::kHostAlloc) +
                      driver.memory->Count(RegionKind::kRegistered);
  counts.num_captures = static_cast<int>(driver.captures.size());
  counts.num_current = static_cast<int>(ContextStack().size());
  counts.num_unmapped_under_work = driver.num_unmapped_under_work;
  counts.num_findings = driver.journal->num_findings();
  return counts;
}

CUresult datasetd_emulated_gpu_hold(CUstream stream, int is_held) {
  return Driver::Get().Run(
      "datasetd_emulated_gpu_hold", kNoRule, [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        found->Hold(is_held != 0);
        return CUDA_SUCCESS;
      });
}

void datasetd_emulated_gpu_hold_new(int is_held) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.scheduling.mutex);
  driver.holds_new_streams = is_held != 0;
}

CUstream datasetd_emulated_gpu_newest_stream(void) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.scheduling.mutex);
  const auto newest = driver.streams.rbegin();  // handles only grow
  return ToHandle<CUstream>(newest == driver.streams.rend() ? 0
                                                            : newest->first);
}

CUresult datasetd_emulated_gpu_advance(CUstream stream) {
  return Driver::Get().Run(
      "datasetd_emulated_gpu_advance", kNoRule, [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        found->Advance(call.lock);
        return CUDA_SUCCESS;
      });
}

CUresult datasetd_emulated_gpu_set_faults(const char* faults) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.scheduling.mutex);
  return driver.scheduling.faults.Set(faults) ? CUDA_SUCCESS
                                              : CUDA_ERROR_INVALID_VALUE;
}

void datasetd_emulated_gpu_set_attribute(CUdevice_attribute attribute,
                                         int value) {
  Driver& driver = Driver::Get();
  const std::lock_guard lock(driver.scheduling.mutex);
  driver.settings.attributes[attribute] = value;
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
