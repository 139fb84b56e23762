// What becomes of samples that cannot be read or decoded, and the report of
// them.

#ifndef DATASETD_SERVER_DATASET_BAD_SAMPLES_H_
#define DATASETD_SERVER_DATASET_BAD_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd {

enum class BadSamplePolicy : uint8_t {
  kFail = 1,
  // The dataset has fewer samples.
  kSkip = 2,
  // All fields are those of the good sample before it; at the beginning, of the
  // first good one.
  kReplace = 3,
};

struct BadSample {
  int64_t index = 0;  // in the source
  std::string path;
  int64_t offset = 0;  // of the sample in the file
  std::string reason;
  bool operator==(const BadSample&) const = default;
};

inline constexpr size_t kMaxListedBadSamples = 1000;
// Of the paths and reasons of a report: it must fit into a message.
inline constexpr size_t kMaxReportBytes = 256 << 10;

struct BadSampleReport {
  int64_t num_samples = 0;
  // The first ones, within the limits above.
  std::vector<BadSample> listed;
  size_t num_text_bytes = 0;  // of `listed`
};

// True for the errors that make a bad sample, as SampleSource says.
inline bool IsBadSample(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_BAD_SAMPLES_H_
