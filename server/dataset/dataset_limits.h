// Limits on the texts of a dataset: they stay in host memory as long as the
// dataset exists, and are sent to clients.

#ifndef DATASETD_SERVER_DATASET_DATASET_LIMITS_H_
#define DATASETD_SERVER_DATASET_DATASET_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd {

// Together with kMaxReportBytes (bad_samples.h) less than 1 MiB.
inline constexpr int64_t kMaxSpecTextBytes = 64 << 10;
inline constexpr int64_t kMaxClassNameBytes = 640 << 10;
// PATH_MAX of Linux.
inline constexpr int64_t kMaxPathBytes = 4096;

// True for 1 to 128 characters of [A-Za-z0-9._-] that start with a letter or
// digit.
bool IsDatasetName(const std::string& name);

// Host memory for a dataset's spec and class names.
uint64_t DatasetTextBytes(const v1::DatasetSpec& spec,
                          const std::vector<std::string>& class_names);

//   INVALID_ARGUMENT  the name is invalid, or a text is too long; says which
absl::Status CheckSpecTexts(const v1::DatasetSpec& spec);
absl::Status CheckClassNames(const std::vector<std::string>& names);

// Removes "." components, repeated slashes and a trailing slash. Keeps "..",
// which the file system resolves.
std::string NormalPath(absl::string_view path);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_LIMITS_H_
