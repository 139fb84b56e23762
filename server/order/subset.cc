#include "server/order/subset.h"

#include "absl/strings/str_cat.h"

namespace datasetd {

int64_t SubsetTable::SizeBytes(const Options& options) {
  return options.size * static_cast<int64_t>(sizeof(uint32_t)) +
         options.dataset_size / 8 + static_cast<int64_t>(sizeof(uint64_t));
}

SubsetTable::SubsetTable(const Options& options) : options_(options) {
  samples_.reserve(static_cast<size_t>(options.size));
}

absl::Status SubsetTable::Append(absl::Span<const int64_t> indices) {
  if (samples_.empty()) {
    was_there_.resize(static_cast<size_t>(options_.dataset_size));
  }
  for (const int64_t index : indices) {
    if (index < 0 || index >= options_.dataset_size) {
      return absl::OutOfRangeError(absl::StrCat(
          "subset[", samples_.size(), "]: ", index,
          " is out of range; there are ", options_.dataset_size,
          " samples, counted from 0, in dataset '", options_.dataset, "'"));
    }
    if (was_there_[static_cast<size_t>(index)]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "subset[", samples_.size(), "]: ", index,
          " is there twice; an order that the client makes may repeat samples "
          "(client_order, in Python sampler=)"));
    }
    was_there_[static_cast<size_t>(index)] = true;
    samples_.push_back(static_cast<uint32_t>(index));
  }
  if (samples_.size() == static_cast<size_t>(options_.size)) {
    std::vector<bool>().swap(was_there_);
  }
  return absl::OkStatus();
}

}  // namespace datasetd
