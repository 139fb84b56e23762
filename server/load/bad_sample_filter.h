// Takes the bad samples out of chunks of decoded ones, as the policy says.
//
// Chunks come in order. Not thread-safe.

#ifndef DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_
#define DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// The status of a sample, with its path and offset.
absl::Status LocatedStatus(const SampleSource& source, int64_t index,
                           const absl::Status& status);

// Counts one more bad sample, and lists it if there is room.
void AddBadSample(const SampleSource& source, int64_t index,
                  const absl::Status& status, BadSampleReport& report);

class BadSampleFilter {
 public:
  // A row of rows(): the last good sample of the chunks before.
  static constexpr int64_t kEarlierRow = -1;

  // `source` outlives this. `sample_bytes`: of each field, as decoded; 0 of
  // packed ones, which the caller arranges.
  BadSampleFilter(BadSamplePolicy policy, int64_t max_bad_samples,
                  const SampleSource* source,
                  std::vector<int64_t> sample_bytes);

  // statuses[i] is of sample first + i, field f of which is at
  // fields[f] + i * sample_bytes[f]. Moves the samples to keep to the front,
  // and returns how many they are.
  //   the status of a sample, with its path: it ends the load, or the policy is
  //       kFail, or the limit is passed
  absl::StatusOr<int64_t> Filter(int64_t first,
                                 absl::Span<const absl::Status> statuses,
                                 absl::Span<const absl::Span<uint8_t>> fields);

  // After Filter: which row of the chunk each sample that it kept comes from.
  absl::Span<const int64_t> rows() const { return rows_; }

  // The error of a load of which nothing is left.
  absl::Status NothingLeft() const;

  const BadSampleReport& report() const { return report_; }

 private:
  absl::Status Add(int64_t index, const absl::Status& status);
  // Sets rows_.
  void Skip(absl::Span<const absl::Status> statuses);
  absl::Status Replace(absl::Span<const absl::Status> statuses);
  // Lets the samples stand as rows_ says, and keeps the last good one.
  void Arrange(absl::Span<const absl::Span<uint8_t>> fields);
  void Copy(absl::Span<const absl::Span<uint8_t>> fields, int64_t from,
            int64_t to) const;

  const BadSamplePolicy policy_;
  const int64_t max_bad_samples_;
  const SampleSource* const source_;
  const std::vector<int64_t> sample_bytes_;
  BadSampleReport report_;
  std::vector<int64_t> rows_;
  // kReplace: the fields of the last good sample; empty before there is one.
  std::vector<std::vector<uint8_t>> last_good_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_BAD_SAMPLE_FILTER_H_
