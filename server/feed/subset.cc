#include "server/feed/subset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace datasetd {

absl::StatusOr<Subset> MakeSubset(absl::Span<const int64_t> indices,
                                  int64_t num_samples,
                                  const std::string& dataset) {
  if (indices.empty() || indices.size() > kMaxSubsetSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("subset: ", indices.size(), " samples; it can have 1 to ",
                     kMaxSubsetSize, ". Send a larger one as a client_order"));
  }
  auto subset = std::make_shared<std::vector<uint32_t>>();
  subset->reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= num_samples) {
      return absl::OutOfRangeError(absl::StrCat(
          "subset[", i, "]: ", index, " is out of range; dataset '", dataset,
          "' has ", num_samples, " samples, counted from 0"));
    }
    subset->push_back(static_cast<uint32_t>(index));
  }
  std::vector<uint32_t> sorted = *subset;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    const auto first = std::find(subset->begin(), subset->end(), *twice);
    const auto second = std::find(first + 1, subset->end(), *twice);
    return absl::InvalidArgumentError(
        absl::StrCat("subset[", second - subset->begin(), "]: sample ", *twice,
                     " is named twice; a client_order may repeat samples"));
  }
  return subset;
}

}  // namespace datasetd
