// Finds the resident sizes of the samples of an encoded source from their
// headers. Loads whose samples keep their own sizes start with this.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_SIZES_H_
#define DATASETD_SERVER_LOAD_SAMPLE_SIZES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/dataset/sample_source.h"
#include "server/load/decode_budget.h"
#include "server/load/load_plan.h"
#include "server/load/sample_transform.h"

namespace datasetd {

// Collects the sizes for all fields of a plan that need them. Concurrent calls
// must be for different samples.
class SampleSizesTable {
 public:
  SampleSizesTable(const SourceInfo& source, const LoadPlan& plan);

  // Errors as SampleTransform::Check.
  absl::Status Set(int64_t sample, const SampleProbe& probe);

  // The argument for PlanLoad. REQUIRES: Set is not called any more.
  std::vector<std::optional<SampleSizes>> sizes() const;

 private:
  struct Field {
    size_t index;        // in the source
    size_t probe_index;  // in SampleProbe::sizes
    std::unique_ptr<SampleTransform> transform;
    std::shared_ptr<std::vector<ImageSize>> sizes;
  };

  size_t num_fields_;
  std::vector<Field> fields_;
};

// Reads the headers of all samples on the plan's threads. Skips bad samples.
// Blocks. CANCELLED if is_cancelled was set. Also any error of the source other
// than a bad sample's, and errors of SampleTransform::Check with the sample's
// path.
absl::StatusOr<std::vector<std::optional<SampleSizes>>> FindSampleSizes(
    const SampleSource& source, const LoadPlan& plan,
    const DecodeAccount& account, const std::atomic<bool>& is_cancelled);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_SIZES_H_
