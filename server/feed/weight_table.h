// The weights of a feed's samples, and the draws that they make.
//
// Draw p of an epoch takes sample i with probability weight[i] / sum, with
// replacement, and is a function of (weights, seed, epoch, p): the first sample
// whose cumulative weight exceeds u times the sum, in float64, where u is the
// top 53 bits of word p of NumPy's Philox (4x64, 10 rounds) with the key (seed,
// epoch), times 2^-53. So numpy.random.Philox(key=[seed, epoch]).random_raw and
// numpy.searchsorted(cumsum, ..., side="right") give the same samples.
//
// Blocks of weights are appended until there are num_samples of them; from then
// on the table is constant. Append and is_complete are thread-safe; Draw is, on
// a table that is complete for the caller. Allocates only in the constructor.

#ifndef DATASETD_SERVER_FEED_WEIGHT_TABLE_H_
#define DATASETD_SERVER_FEED_WEIGHT_TABLE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"

namespace datasetd {

class WeightTable {
 public:
  // As many categories as torch.multinomial takes.
  static constexpr int64_t kMaxSize = 1 << 24;

  struct Options {
    int64_t num_samples = 0;  // 1..kMaxSize
    // The blocks list the samples; else they are 0, 1, 2, ...
    bool lists_samples = false;
    int64_t dataset_size = 0;
    std::string dataset;  // its name, for errors
  };

  struct Block {
    uint64_t first = 0;  // number of weights before the block
    absl::Span<const double> weights;
    absl::Span<const int64_t> indices;  // with lists_samples: of the weights
  };

  // Memory that the constructor allocates.
  static int64_t SizeBytes(const Options& options);

  explicit WeightTable(const Options& options);

  // Appends the whole block or nothing.
  //   INVALID_ARGUMENT  the block does not begin where the last one ended, or
  //                     exceeds num_samples; a weight is negative or not
  //                     finite; or so is the sum, or 0 with the last block
  //   OUT_OF_RANGE      a listed index is not in the dataset
  absl::Status Append(const Block& block);

  // True once there are num_samples weights.
  bool is_complete() const { return is_complete_.load(); }

  // Writes the samples of draws first, first + step, first + 2 * step, ... of
  // the epoch. A draw costs two or three cache misses where weights are alike,
  // and at most O(log num_samples). REQUIRES: is_complete().
  void Draw(uint64_t seed, uint64_t epoch, uint64_t first, uint64_t step,
            absl::Span<int64_t> samples) const;

 private:
  // Log2 of the number of equal intervals of u that guide_ has.
  static int GuideBits(int64_t num_samples);
  void MakeGuide();
  absl::Status Check(const Block& block, double* sum) const;
  std::string Name(uint64_t i, const Block& block) const;

  const Options options_;
  Mutex mutex_;
  std::atomic<bool> is_complete_ = false;
  // Change under mutex_ until the table is complete.
  std::vector<double> cumulative_;
  // The place that u = i / 2^bits draws; those of larger u are not before it.
  std::vector<uint32_t> guide_;
  std::vector<uint32_t> samples_;  // empty without lists_samples
  uint64_t last_ = 0;              // the last one with a weight above 0
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_WEIGHT_TABLE_H_
