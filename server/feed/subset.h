// A subset of a dataset, checked. Pure; thread-safe.

#ifndef DATASETD_SERVER_FEED_SUBSET_H_
#define DATASETD_SERVER_FEED_SUBSET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace datasetd {

// What fits a message of 4 MiB.
inline constexpr size_t kMaxSubsetSize = 1'000'000;

using Subset = std::shared_ptr<const std::vector<uint32_t>>;

// `indices` in their order. REQUIRES: num_samples is at most 2^32.
//   INVALID_ARGUMENT  none or too many, or one is named twice
//   OUT_OF_RANGE      the dataset, named in the message, has no such sample
absl::StatusOr<Subset> MakeSubset(absl::Span<const int64_t> indices,
                                  int64_t num_samples,
                                  const std::string& dataset);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SUBSET_H_
