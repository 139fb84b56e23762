// A report of bad samples as text, stored in the notes of a cache entry: the
// number of bad samples, then one line per listed sample with index, offset,
// and path and reason as C strings.

#ifndef DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_
#define DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/dataset/bad_samples.h"

namespace datasetd {

std::string BadSamplesToText(const BadSampleReport& report);

// DATA_LOSS if the text is malformed or lists more than a report may.
absl::StatusOr<BadSampleReport> BadSamplesFromText(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_BAD_SAMPLE_TEXT_H_
