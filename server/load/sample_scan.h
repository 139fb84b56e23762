// Reads the headers of all samples of an encoded source, on the threads of the
// plan, and decodes none. Dry runs are made of this, and loads whose samples
// keep their own sizes start with it.
//
// Not thread-safe.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_
#define DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"
#include "server/load/sample_transform.h"

namespace datasetd {

class SampleScan {
 public:
  // What was found, of a plain source nothing but `largest_sample_bytes`.
  struct Result {
    // Samples that a load finds bad, too: the first ones, by index.
    std::vector<std::pair<int64_t, absl::Status>> bad;
    int64_t num_bad = 0;
    int64_t num_unapplied_exif = 0;
    // The most memory of a sample: its bytes, pixels and pretransforms.
    int64_t largest_sample_bytes = 0;
    // Of the images that may differ in size.
    ImageSize smallest;
    ImageSize largest;
    // The error, with its path, of the first sample that is not bad and cannot
    // become resident; see SampleTransform::Check.
    absl::Status mismatch;
    int64_t mismatch_index = 0;
  };

  // All arguments outlive the scan.
  SampleScan(SampleSource* source, const LoadPlan* plan,
             const DecodeAccount& account);

  // Blocks; counts the samples that are done. REQUIRES: called once, before the
  // functions below.
  //   CANCELLED  is_cancelled was set
  // Also any error of the source that is not a bad sample's, with its path.
  absl::Status Run(const std::atomic<bool>& is_cancelled,
                   std::atomic<int64_t>& num_scanned);

  // The resident sizes, as an argument for PlanSource.
  std::vector<std::optional<SampleSizes>> sizes() const;
  const Result& result() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return result_;
  }

 private:
  // Called for each sample, on the scan's threads.
  void Look(int64_t index, RawSample& raw);
  // Errors of the source, and of samples that are above the limits.
  absl::Status Probe(int64_t index, RawSample& raw, SampleProbe& probe);
  // Keeps the resident sizes of a sample. Errors as SampleTransform::Check.
  absl::Status SetSizes(int64_t index, const SampleProbe& probe);
  // Memory of a sample's pretransforms, over all fields, as far as they can be
  // applied to it.
  int64_t ScratchBytes(const SampleProbe& probe) const;

  SampleSource& source_;
  const LoadPlan& plan_;
  const DecodeAccount account_;
  const SampleTransforms transforms_;
  // By field; null for those that need none. Threads write other elements.
  std::vector<std::shared_ptr<std::vector<ImageSize>>> sizes_;
  std::atomic<bool> has_error_ = false;
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  Result result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_SCAN_H_
