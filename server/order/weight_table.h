// The weights of a feed's samples, and the draws that they make.
//
// Draw p of an epoch takes sample i with probability weight[i] / sum, with
// replacement, and is a function of (weights, seed, epoch, p): the first sample
// whose cumulative weight exceeds u times the sum, in float64, where u is the
// top 53 bits of word p of NumPy's Philox (4x64, 10 rounds) with the key (seed,
// epoch), times 2^-53. So numpy.random.Philox(key=[seed, epoch]).random_raw and
// numpy.searchsorted(cumsum, ..., side="right") give the same samples.
//
// The weights, and the samples that they are of, are appended in blocks; once
// Finish has succeeded the table is constant. Draw is thread-safe on a table
// that is finished for the caller; else thread-compatible. Allocates only in
// the constructor.

#ifndef DATASETD_SERVER_ORDER_WEIGHT_TABLE_H_
#define DATASETD_SERVER_ORDER_WEIGHT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace datasetd {

class WeightTable {
 public:
  // As many categories as torch.multinomial takes.
  static constexpr int64_t kMaxSize = 1 << 24;

  struct Options {
    int64_t num_samples = 0;  // 1..kMaxSize
    // AppendSamples lists the samples; else they are 0, 1, 2, ...
    bool lists_samples = false;
    int64_t dataset_size = 0;
    std::string dataset;  // its name, for errors
  };

  // Memory that the constructor allocates.
  static int64_t SizeBytes(const Options& options);

  explicit WeightTable(const Options& options);
  // A table for other weights of the same samples as those of `other`, which
  // is finished: AppendSamples is not called.
  static std::shared_ptr<WeightTable> Like(const WeightTable& other);

  const Options& options() const { return options_; }

  // Append num_samples weights and, with lists_samples, as many samples.
  //   OUT_OF_RANGE  a sample is not in the dataset
  absl::Status Append(absl::Span<const double> weights);
  absl::Status AppendSamples(absl::Span<const int64_t> samples);

  // Checks the weights and sums them up. REQUIRES: all were appended.
  //   INVALID_ARGUMENT  a weight is negative or not finite, or so is the sum,
  //                     or it is 0
  absl::Status Finish();

  // Writes the samples of draws first, first + step, first + 2 * step, ... of
  // the epoch. A draw costs two or three cache misses where weights are alike,
  // and at most O(log num_samples). REQUIRES: Finish() has succeeded.
  void Draw(uint64_t seed, uint64_t epoch, uint64_t first, uint64_t step,
            absl::Span<int64_t> samples) const;

 private:
  // Log2 of the number of equal intervals of u that guide_ has.
  static int GuideBits(int64_t num_samples);
  void MakeGuide();
  // Of the weight at `place`, for errors.
  std::string SampleName(size_t place) const;

  const Options options_;
  std::vector<double> cumulative_;  // the weights themselves before Finish
  // The place that u = i / 2^bits draws; those of larger u are not before it.
  std::vector<uint32_t> guide_;
  std::vector<uint32_t> samples_;  // empty without lists_samples
  uint64_t last_ = 0;              // the last one with a weight above 0
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_WEIGHT_TABLE_H_
