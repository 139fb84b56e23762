// A report of bad samples as text, for the notes of a cache entry: the number
// of samples, then a line for each that is listed: index, offset, and path and
// reason as C strings.

#ifndef DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_
#define DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/dataset/bad_samples.h"

namespace datasetd {

std::string BadSamplesToText(const BadSampleReport& report);

// DATA_LOSS: it is no such text, or lists more than a report may.
absl::StatusOr<BadSampleReport> BadSamplesFromText(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_
