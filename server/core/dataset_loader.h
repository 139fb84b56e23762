// Reads a source into device memory.
//
//   plain    read -> staging -> (pretransform on the device) -> resident
//   encoded  (read -> decode -> pretransform) on all cores -> staging -> resident
//
// Copies to the device run while the next chunk is read. Peak host memory is
// LoadPlan::host_bytes. Pretransforms are the same kernel as transforms.

#ifndef DATASETD_SERVER_CORE_DATASET_LOADER_H_
#define DATASETD_SERVER_CORE_DATASET_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/backend.h"
#include "server/core/bad_samples.h"
#include "server/core/dataset.h"
#include "server/core/field_spec.h"
#include "server/core/memory_budget.h"
#include "server/core/sample_source.h"
#include "server/core/transform_spec.h"

namespace datasetd {

// How a source becomes resident, known before a sample is read.
struct LoadPlan {
  struct FieldPlan {
    FieldSpec resident;
    // Set if the field has pretransforms; source and offset are not.
    bool has_program = false;
    FieldProgram program = {};
    // Of an encoded source: what `program` was compiled from.
    std::vector<TransformSpec> ops;
  };
  std::vector<FieldPlan> fields;  // one for each field of the source
  bool is_encoded = false;
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  int64_t max_bad_samples = 0;
  int num_decode_threads = 1;
  // Encoded: the source may decode ragged images to less than their size, but
  // not to less than this; 0 x 0: it may not.
  ImageSize smaller_images;
  int64_t chunk_samples = 0;
  int num_staging_buffers = 0;
  int64_t staging_bytes = 0;   // of one buffer
  int64_t resident_bytes = 0;  // on the device, for good
  int64_t scratch_bytes = 0;   // on the device, while loading

  // The most that the load takes of the host, if no image is larger than
  // `largest_sample_bytes` raw and decoded.
  int64_t host_bytes(int64_t largest_sample_bytes) const;
};

// `programs[f]` as CompileField made it from field f's pretransforms, or
// nullopt where there are none; `max_teams` is the backend's. Of an encoded
// source bad_samples, max_bad_samples, num_decode_threads and the fields' ops
// are left to the caller.
//   INVALID_ARGUMENT  the dataset is larger than any memory
absl::StatusOr<LoadPlan> PlanLoad(
    const SourceInfo& source,
    const std::vector<std::optional<FieldProgram>>& programs, int max_teams);

struct LoadCounters {
  std::atomic<int64_t> num_samples = 0;  // of the source, the bad ones included
  std::atomic<int64_t> num_bad_samples = 0;
  std::atomic<int64_t> num_bytes = 0;  // resident so far
  std::atomic<bool> is_cancelled = false;
};

// Loads all samples. Blocks; `counters` moves meanwhile.
//   CANCELLED           counters.is_cancelled was set
//   RESOURCE_EXHAUSTED  the device has not so much memory
//   any error of the source, of a bad sample only as the policy says
absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, Reservation reservation, LoadCounters& counters);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_DATASET_LOADER_H_
