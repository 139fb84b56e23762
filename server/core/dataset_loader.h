// Reads a source into device memory: reader -> staging -> (pretransform) ->
// resident.
//
// Peak host memory is two staging buffers. Pretransforms run on the device, in
// the same kernel as transforms.

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
#include "server/core/dataset.h"
#include "server/core/field_spec.h"
#include "server/core/memory_budget.h"
#include "server/core/sample_source.h"

namespace datasetd {

// How a source becomes resident, known before a sample is read.
struct LoadPlan {
  struct FieldPlan {
    FieldSpec resident;
    // Set if the field has pretransforms; source and offset are not.
    bool has_program = false;
    FieldProgram program = {};
  };
  std::vector<FieldPlan> fields;  // one for each field of the source
  int64_t chunk_samples = 0;
  int64_t staging_bytes = 0;   // of one of the two buffers
  int64_t resident_bytes = 0;  // on the device, for good
  int64_t scratch_bytes = 0;   // on the device, while loading
};

// `programs[f]` as CompileField made it from field f's pretransforms, or
// nullopt where there are none.
// `max_teams` is the backend's.
//   INVALID_ARGUMENT  the dataset is larger than any memory
absl::StatusOr<LoadPlan> PlanLoad(
    const std::vector<FieldSpec>& fields, int64_t num_samples,
    const std::vector<std::optional<FieldProgram>>& programs, int max_teams);

struct LoadCounters {
  std::atomic<int64_t> num_samples = 0;
  std::atomic<int64_t> num_bytes = 0;  // resident so far
  std::atomic<bool> is_cancelled = false;
};

// Loads all samples. Blocks; `counters` moves meanwhile. Takes the reservation
// if it succeeds. `expected_hash`: the content hash that they must have, or
// empty.
//   CANCELLED           counters.is_cancelled was set
//   RESOURCE_EXHAUSTED  the device has not so much memory
//   DATA_LOSS           they have another hash than expected
//   any error of the source
absl::StatusOr<std::shared_ptr<const Dataset>> LoadDataset(
    const std::string& name, const LoadPlan& plan, SampleSource& source,
    Backend* backend, Reservation&& reservation, LoadCounters& counters,
    const std::string& expected_hash = "");

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_DATASET_LOADER_H_
