// How much a dataset may say of itself. It is kept on the host for as long as
// the dataset is there, and told to others.

#ifndef DATASETD_SERVER_DATASET_DATASET_LIMITS_H_
#define DATASETD_SERVER_DATASET_DATASET_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/dataset/dataset_spec.h"

namespace datasetd {

// With kMaxReportBytes (bad_samples.h) less than 1 MiB together.
inline constexpr int64_t kMaxSpecTextBytes = 64 << 10;
inline constexpr int64_t kMaxClassNameBytes = 640 << 10;
// As Linux has it.
inline constexpr int64_t kMaxPathBytes = 4096;

// Bytes of the request that the spec came from.
int64_t SpecTextBytes(const DatasetSpec& spec);

// Of the host, for a dataset's spec and the names of its classes.
uint64_t DatasetTextBytes(const DatasetSpec& spec,
                          const std::vector<std::string>& class_names);

//   INVALID_ARGUMENT  the name is none; a text is too long: says which
absl::Status CheckSpecTexts(const DatasetSpec& spec);
absl::Status CheckClassNames(const std::vector<std::string>& names);

// Without "." components, doubled slashes and one at the end. ".." stays: the
// file system knows what it means.
std::string NormalPath(absl::string_view path);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_DATASET_LIMITS_H_
