// The samples of a dataset to which a feed is restricted. Thread-compatible.

#ifndef DATASETD_SERVER_ORDER_SUBSET_H_
#define DATASETD_SERVER_ORDER_SUBSET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace datasetd {

// Distinct sample indices, in the order of the subset.
using Subset = std::shared_ptr<const std::vector<uint32_t>>;

class SubsetTable {
 public:
  struct Options {
    int64_t size = 0;          // 1..dataset_size
    int64_t dataset_size = 0;  // at most 2^32 - 1
    std::string dataset;       // its name, for errors
  };

  // Memory that the constructor and Append allocate.
  static int64_t SizeBytes(const Options& options);

  explicit SubsetTable(const Options& options);

  // Appends samples, of which there may be `size` altogether.
  //   OUT_OF_RANGE      an index is not in the dataset
  //   INVALID_ARGUMENT  an index was there before
  absl::Status Append(absl::Span<const int64_t> indices);

  // The samples that were appended so far.
  const std::vector<uint32_t>& samples() const { return samples_; }

 private:
  const Options options_;
  std::vector<uint32_t> samples_;
  // A bit for each sample of the dataset that was there; empty once all are.
  std::vector<bool> was_there_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_SUBSET_H_
