// The report of samples that cannot be read or decoded.

#ifndef DATASETD_SERVER_DATASET_BAD_SAMPLES_H_
#define DATASETD_SERVER_DATASET_BAD_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd {

struct BadSample {
  int64_t index = 0;  // in the source
  std::string path;
  int64_t offset = 0;  // of the sample in the file
  std::string reason;
  bool operator==(const BadSample&) const = default;
};

inline constexpr size_t kMaxListedBadSamples = 1000;
// Maximum size of the paths and reasons in a report, which must fit in a
// message.
inline constexpr size_t kMaxReportBytes = 256 << 10;

struct BadSampleReport {
  int64_t num_samples = 0;
  // How many of them may be good another time: IsInBytes is false.
  int64_t num_transient = 0;
  // The first bad samples, within the limits above.
  std::vector<BadSample> listed;
  size_t num_text_bytes = 0;  // of `listed`
  bool operator==(const BadSampleReport&) const = default;
};

// True for the errors of a bad sample, as listed at SampleSource.
inline bool IsBadSample(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnavailable:
      return true;
    default:
      return false;
  }
}

// Marks the error of a sample as one of its bytes: it is bad as long as its
// file stays the same. Without the mark, the cause may be another one that
// passes, such as permissions, a disk or a limit of the configuration.
// Those of Probe and Decode need no mark.
absl::Status InBytes(absl::Status status);
bool IsInBytes(const absl::Status& status);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_BAD_SAMPLES_H_
