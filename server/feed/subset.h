// A validated subset of a dataset. Pure; thread-safe.

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

// Fits in a message of 4 MiB.
inline constexpr size_t kMaxSubsetSize = 1'000'000;

using Subset = std::shared_ptr<const std::vector<uint32_t>>;

// Returns `indices` in their order. REQUIRES: num_samples <= 2^32.
//   INVALID_ARGUMENT  none, too many, or a repeated index
//   OUT_OF_RANGE      an index is not in the dataset, which the message names
absl::StatusOr<Subset> MakeSubset(absl::Span<const int64_t> indices,
                                  int64_t num_samples,
                                  const std::string& dataset);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SUBSET_H_
