// A dry run: what a load would find and need, without loading.
//
// Reads every sample of an encoded source and parses its headers, on all cores,
// but decodes no sample. Not thread-safe.

#ifndef DATASETD_SERVER_LOAD_LOAD_ESTIMATOR_H_
#define DATASETD_SERVER_LOAD_LOAD_ESTIMATOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/dataset_sources.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/load/sample_scan.h"
#include "server/load/sample_transform.h"

namespace datasetd {

class LoadEstimator {
 public:
  // Starts the run. The devices and budgets outlive the estimator. `terms` are
  // those of the load.
  LoadEstimator(OpenedSource source, const MemoryBudget::Terms& terms,
                const DecodeAccount& account);
  // Stops the run if it is not finished.
  ~LoadEstimator() { is_stopping_.store(true, std::memory_order_relaxed); }

  int64_t num_samples() const { return source_.reader->info().num_samples; }
  int64_t num_scanned() const {
    return scan_ == nullptr ? num_samples() : scan_->num_scanned();
  }
  // Blocks until all samples are checked or `timeout` passes; true if they are.
  bool Await(absl::Duration timeout) {
    return scan_ == nullptr || scan_->Await(timeout);
  }
  // REQUIRES: Await returned true.
  v1::LoadEstimate Result();

 private:
  // {index of the field, height, width}.
  using FieldSize = std::tuple<size_t, int64_t, int64_t>;

  // Called for each sample, on the scan's threads.
  absl::Status Look(int64_t index, const SampleProbe& probe,
                    int64_t size_bytes);
  void AddBad(int64_t index, const absl::Status& status);
  // The plan with the sizes that were found.
  absl::StatusOr<LoadPlan> FinishedPlan() const;
  absl::Status FindProblem(const Placement& placement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSizes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Memory of a sample's pretransforms, over all fields, as far as they can be
  // applied to it.
  int64_t ScratchBytes(const SampleProbe& probe) const;

  const OpenedSource source_;
  const MemoryBudget::Terms terms_;
  const DecodeAccount account_;
  const SampleTransforms transforms_;
  SampleSizesTable resident_sizes_;

  std::atomic<bool> is_stopping_ = false;
  mutable Mutex mutex_;
  std::vector<std::pair<int64_t, absl::Status>> bad_ ABSL_GUARDED_BY(mutex_);
  int64_t num_bad_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_unapplied_exif_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t largest_sample_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // The first sample of each size of each ragged field; bounded.
  std::map<FieldSize, int64_t> sizes_ ABSL_GUARDED_BY(mutex_);
  ImageSize smallest_ ABSL_GUARDED_BY(mutex_);
  ImageSize largest_ ABSL_GUARDED_BY(mutex_);
  // Null if the source is plain. Last: its threads use the others.
  std::unique_ptr<SampleScan> scan_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_ESTIMATOR_H_
