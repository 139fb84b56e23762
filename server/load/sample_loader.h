// Reads a source into device memory.
//
//   read, decode, pretransform -> staging -> hash and copy
//
// The workers (sample_workers.h) read samples, decode and pretransform them,
// and write them to staging memory, chunk by chunk. The content hash is made
// over the staged bytes, which are then copied to the device, or to where else
// the samples are to lie (field_writer.h), while the workers make the next
// chunks. Peak host memory is LoadPlan::host_bytes.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_LOADER_H_
#define DATASETD_SERVER_LOAD_SAMPLE_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/digest.h"
#include "base/mutex.h"
#include "cuda/backend/backend.h"
#include "server/dataset/dataset.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"

namespace datasetd {

// Progress and cancellation of a load. Thread-safe.
struct LoadCounters {
  // Ends the load as soon as possible; running device work is cut short.
  void Cancel() {
    is_cancelled.store(true, std::memory_order_relaxed);
    MutexLock lock(&mutex);
    for (Stream* const stream : streams) stream->Cancel();
  }
  // Sets the streams that Cancel cancels; none before these are destroyed.
  void SetStreams(std::vector<Stream*> new_streams) {
    MutexLock lock(&mutex);
    streams = std::move(new_streams);
    if (!is_cancelled.load(std::memory_order_relaxed)) return;
    for (Stream* const stream : streams) stream->Cancel();
  }

  // Samples whose sizes were found, before any is loaded.
  std::atomic<int64_t> num_sizes = 0;
  std::atomic<int64_t> num_samples = 0;  // of the source, bad ones included
  std::atomic<int64_t> num_bad_samples = 0;
  std::atomic<int64_t> num_bytes = 0;  // resident so far
  std::atomic<bool> is_cancelled = false;
  Mutex mutex;
  std::vector<Stream*> streams ABSL_GUARDED_BY(mutex);
};

// Where the samples of a load go, if not to memory of the device.
class SampleStore {
 public:
  virtual ~SampleStore() = default;
  // Memory for all samples of a field, which the backend's streams can write.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t field, int64_t size_bytes) = 0;
  // An error once what was written is lost, which ends the load.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // Called once, when all samples were written: may replace the memory.
  virtual absl::Status Finish(Dataset::Contents& contents) = 0;
};

// Loads all samples as background work of the account's user, who is charged
// for what the workers need. Blocks; updates `counters` while running.
// Allocates what `memory` says and takes its reservations on success; feeds may
// run on its devices, but on `backend`, its first device's, if there is no
// placement. If `expected_hash` is not empty, the samples must have this
// content hash. `store` may be null. REQUIRES: !plan.needs_sizes().
//   CANCELLED           counters.Cancel was called
//   RESOURCE_EXHAUSTED  the device is out of memory
//   DATA_LOSS           the samples do not have the expected hash
// Also any error of the source; the error of a bad sample only if the policy
// says so.
absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, PlacedMemory&& memory, LoadCounters& counters,
    const DecodeAccount& account, const std::string& expected_hash = "",
    SampleStore* store = nullptr);

// The hash of the number of samples, and of names, dtypes, shapes and bytes of
// all fields, whose digests are a ContentHasher's.
std::string ContentHash(const LoadPlan& plan, int64_t num_samples,
                        absl::Span<const Digest> fields);

// Does all that LoadDataset does but keep the samples: takes the same buffers,
// and returns the contents that the dataset would have, without its memory.
// Errors as LoadDataset. REQUIRES: !plan.needs_sizes().
absl::StatusOr<Dataset::Contents> HashSamples(const LoadPlan& plan,
                                              SampleSource& source,
                                              Backend* backend,
                                              LoadCounters& counters,
                                              const DecodeAccount& account);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_LOADER_H_
