// Removes bad samples from chunks of decoded samples, as the policy says.
//
// Chunks are passed in order. Not thread-safe.

#ifndef DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_
#define DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// Counts one bad sample, and lists it if the report has room.
void AddBadSample(const SampleSource& source, int64_t index,
                  const absl::Status& status, BadSampleReport& report);

class BadSampleFilter {
 public:
  // A value in rows(): the last good sample of earlier chunks.
  static constexpr int64_t kEarlierRow = -1;

  // `source` outlives the filter. `sample_bytes` is the decoded size of each
  // field; 0 for packed fields, which the caller rearranges.
  BadSampleFilter(v1::BadSamplePolicy policy, int64_t max_bad_samples,
                  const SampleSource* source,
                  std::vector<int64_t> sample_bytes);

  // Filters a chunk: statuses[i] is the status of sample first + i, whose field
  // f is at fields[f] + i * sample_bytes[f]. Moves the kept samples to the
  // front and returns their number. Returns the status of a bad sample, with
  // its path, if that status ends the load, the policy is kFail, or the limit
  // is exceeded.
  absl::StatusOr<int64_t> Filter(int64_t first,
                                 absl::Span<const absl::Status> statuses,
                                 absl::Span<const absl::Span<uint8_t>> fields);

  // The chunk row of each sample that the last Filter kept.
  absl::Span<const int64_t> rows() const { return rows_; }

  // The error of a load that has no good sample.
  absl::Status NothingLeft() const;

  const BadSampleReport& report() const { return report_; }

 private:
  absl::Status Add(int64_t index, const absl::Status& status);
  // Sets rows_.
  void Skip(absl::Span<const absl::Status> statuses);
  absl::Status Replace(absl::Span<const absl::Status> statuses);
  // Moves samples as rows_ says, and saves the last good one.
  void Arrange(absl::Span<const absl::Span<uint8_t>> fields);

  const v1::BadSamplePolicy policy_;
  const int64_t max_bad_samples_;
  const SampleSource* const source_;
  const std::vector<int64_t> sample_bytes_;
  BadSampleReport report_;
  std::vector<int64_t> rows_;
  // kReplace: the fields of the last good sample; empty if there was none yet.
  std::vector<std::vector<uint8_t>> last_good_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_
