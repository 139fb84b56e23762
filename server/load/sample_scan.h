// Reads the headers of all samples of an encoded source on background threads.
// Dry runs are made of this, and loads whose samples keep their own sizes start
// with it.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_
#define DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"
#include "server/load/sample_transform.h"

namespace datasetd {

// Not thread-safe.
class SampleScan {
 public:
  // Called on the scan's threads, at once for different samples. `size_bytes`
  // is the memory of the sample and of its decoding. Its error is the sample's.
  using OnSample = std::function<absl::Status(
      int64_t index, const SampleProbe& probe, int64_t size_bytes)>;
  using OnBadSample =
      std::function<void(int64_t index, const absl::Status& status)>;

  // All arguments outlive the scan. Ends early once `is_cancelled` is set.
  SampleScan(const SampleSource* source, int num_threads,
             const DecodeAccount& account,
             const std::atomic<bool>* is_cancelled, OnSample on_sample,
             OnBadSample on_bad_sample);

  int64_t num_scanned() const {
    return num_scanned_.load(std::memory_order_relaxed);
  }
  // Blocks until the scan has ended or `timeout` passes; true if it has ended.
  bool Await(absl::Duration timeout);
  // The error that ended the scan, with the sample's path; not that of a bad
  // sample. REQUIRES: Await returned true.
  absl::Status error() const;

 private:
  void Look(int64_t index, RawSample& raw);
  absl::Status Probe(int64_t index, RawSample& raw);

  const SampleSource& source_;
  const DecodeAccount account_;
  const std::atomic<bool>& is_cancelled_;
  const OnSample on_sample_;
  const OnBadSample on_bad_sample_;
  std::atomic<int64_t> num_scanned_ = 0;
  std::atomic<bool> has_error_ = false;
  mutable Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool has_ended_ = false;
  ParallelFor samples_;  // last: its threads use the others
};

// Collects the sizes for all fields of a plan that need them. Concurrent calls
// must be for different samples.
class SampleSizesTable {
 public:
  // `transforms` are the plan's, and outlive the table.
  SampleSizesTable(const SourceInfo& source, const LoadPlan& plan,
                   const SampleTransforms* transforms);

  // Errors as SampleTransform::Check.
  absl::Status Set(int64_t sample, const SampleProbe& probe);

  // The argument for PlanSource. REQUIRES: Set is not called any more.
  std::vector<std::optional<SampleSizes>> sizes() const;

 private:
  const SampleTransforms& transforms_;
  // By field; null for those that need none.
  std::vector<std::shared_ptr<std::vector<ImageSize>>> sizes_;
};

// Finds the resident sizes of all samples on the plan's threads. Skips bad
// samples. Blocks. CANCELLED if is_cancelled was set. Also any error of the
// source other than a bad sample's, and errors of SampleTransform::Check with
// the sample's path. `num_sizes` counts the samples, as they are done.
absl::StatusOr<std::vector<std::optional<SampleSizes>>> FindSampleSizes(
    const SampleSource& source, const LoadPlan& plan,
    const DecodeAccount& account, const std::atomic<bool>& is_cancelled,
    std::atomic<int64_t>* num_sizes = nullptr);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_
