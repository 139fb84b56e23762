// A push under the name of a READY dataset: its samples are hashed, to find out
// whether it would have made the same dataset.
//
// Does not keep the dataset, which may be unloaded meanwhile. The entry that
// refers to it is the registry's; Cancel is thread-safe.

#ifndef DATASETD_SERVER_REGISTRY_PUSH_COMPARISON_H_
#define DATASETD_SERVER_REGISTRY_PUSH_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"
#include "server/load/dataset_sources.h"
#include "server/load/load_plan.h"
#include "server/load/sample_loader.h"

namespace datasetd {

struct DatasetEntry;

class PushComparison {
 public:
  // `cancel` makes the push's reads fail. REQUIRES: `present` is READY.
  PushComparison(const DatasetEntry& present, uint64_t session_id,
                 std::function<void()> cancel);

  // Compares what is known of a push before its samples: where they go, their
  // pretransforms and class names. As CheckPlan.
  static absl::Status CheckRequest(const DatasetEntry& present,
                                   const OpenedSource& push);
  // Compares the number of samples and the fields, as far as the plan has them.
  // ALREADY_EXISTS names the first difference, and what to do.
  absl::Status CheckPlan(const LoadPlan& plan) const;
  // Compares the rest. As CheckPlan.
  absl::Status CheckSamples(const Dataset::Contents& hashed) const;

  // Ends the push soon.
  void Cancel() {
    counters_.Cancel();
    cancel_();
  }
  LoadCounters& counters() { return counters_; }
  uint64_t entry_id() const { return entry_id_; }
  uint64_t session_id() const { return session_id_; }

 private:
  const uint64_t entry_id_;
  const uint64_t session_id_;
  const std::string name_;
  const int64_t num_samples_;
  const std::vector<FieldSpec> fields_;
  const std::string content_hash_;
  const std::function<void()> cancel_;
  LoadCounters counters_;
};

// FAILED_PRECONDITION if a spec asks for a private or pinned dataset, and the
// one that is there is not.
absl::Status CheckAccess(const DatasetEntry& present,
                         const v1::DatasetSpec& wanted);

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_PUSH_COMPARISON_H_
