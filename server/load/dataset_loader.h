// Reads a source into device memory.
//
//   plain    read -> staging -> (pretransform on the device) -> resident
//   encoded  (read -> decode -> pretransform) on all cores -> staging ->
//   resident
//
// Copies to the device run while the next chunk is read. Peak host memory is
// LoadPlan::host_bytes. Pretransforms are the same kernel as transforms.

#ifndef DATASETD_SERVER_LOAD_DATASET_LOADER_H_
#define DATASETD_SERVER_LOAD_DATASET_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "cuda/device/backend.h"
#include "server/dataset/dataset.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/decode_budget.h"
#include "server/load/load_plan.h"

namespace datasetd {

// What others see of a load, and how they end it. Thread-safe.
struct LoadCounters {
  // The load ends as soon as it can: what runs on the device is cut short.
  void Cancel() {
    is_cancelled.store(true, std::memory_order_relaxed);
    MutexLock lock(&mutex);
    if (stream != nullptr) stream->Cancel();
  }
  // Of the load: what Cancel cancels; null before it is destroyed.
  void SetStream(Stream* new_stream) {
    MutexLock lock(&mutex);
    stream = new_stream;
    if (stream != nullptr && is_cancelled.load(std::memory_order_relaxed)) {
      stream->Cancel();
    }
  }

  std::atomic<int64_t> num_samples = 0;  // of the source, the bad ones included
  std::atomic<int64_t> num_bad_samples = 0;
  std::atomic<int64_t> num_bytes = 0;  // resident so far
  std::atomic<bool> is_cancelled = false;
  Mutex mutex;
  Stream* stream ABSL_GUARDED_BY(mutex) = nullptr;
};

// Loads all samples, as background work of the account's user, on whose account
// samples are decoded. Blocks; `counters` moves meanwhile. Takes the
// reservation if it succeeds. `expected_hash`: the content hash that they must
// have, or empty. REQUIRES: !plan.needs_sizes().
//   CANCELLED           counters.Cancel was called
//   RESOURCE_EXHAUSTED  the device has not so much memory
//   DATA_LOSS           they have another hash than expected
//   any error of the source, of a bad sample only as the policy says
absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, Reservation&& reservation, LoadCounters& counters,
    const DecodeAccount& account, const std::string& expected_hash = "");

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_DATASET_LOADER_H_
