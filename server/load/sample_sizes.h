// The sizes that the samples of an encoded source have once they are resident,
// found in their headers: a load whose samples keep sizes of their own begins
// with them.

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

// Gathers them, for all fields of a plan that need sizes. Thread-safe for
// samples that differ.
class SampleSizesTable {
 public:
  SampleSizesTable(const SourceInfo& source, const LoadPlan& plan);

  // Errors as SampleTransform::Check.
  absl::Status Set(int64_t sample, const SampleProbe& probe);

  // For PlanLoad. Nothing may be set any more.
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

// Looks at the headers of all samples, on the plan's threads. Bad ones are left
// out. Blocks.
//   CANCELLED  is_cancelled was set
//   any error of the source but of bad samples, and SampleTransform::Check's,
//   with the sample's path
absl::StatusOr<std::vector<std::optional<SampleSizes>>> FindSampleSizes(
    const SampleSource& source, const LoadPlan& plan,
    const DecodeAccount& account, const std::atomic<bool>& is_cancelled);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_SIZES_H_
