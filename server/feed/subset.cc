#include "server/feed/subset.h"

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
  std::vector<bool> is_named(num_samples);
  auto subset = std::make_shared<std::vector<uint32_t>>();
  subset->reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= num_samples) {
      return absl::OutOfRangeError(absl::StrCat(
          "subset[", i, "]: ", index, " is out of range; dataset '", dataset,
          "' has ", num_samples, " samples, counted from 0"));
    }
    if (is_named[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("subset[", i, "]: sample ", index,
                       " is named twice; a client_order may repeat samples"));
    }
    is_named[index] = true;
    subset->push_back(static_cast<uint32_t>(index));
  }
  return subset;
}

}  // namespace datasetd
