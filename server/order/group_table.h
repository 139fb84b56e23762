// The classes of a feed's samples, and the order of groups of one class.
//
// Group g of an epoch is a function of (classes, seed, epoch, g). With C
// classes that have samples, it is one of pass g / C over the classes, in which
// each comes once; and of a class's n samples it takes K, of one shuffled order
// of them for each n / K passes. So a group's samples are distinct where the
// class has K, and repeat as evenly as can be where it has fewer. The classes
// of any C - ceil(C / 4) + 1 consecutive groups are distinct.
// docs/randomness.md has the formula.
//
// Classes are appended in blocks; once Finish has succeeded the table is
// constant. Draw is thread-safe on a table that is finished for the caller;
// else thread-compatible. Allocates only in the constructor.

#ifndef DATASETD_SERVER_ORDER_GROUP_TABLE_H_
#define DATASETD_SERVER_ORDER_GROUP_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace datasetd {

class GroupTable {
 public:
  struct Options {
    int64_t num_samples = 0;  // 1..2^32 - 1
    int64_t group_size = 0;   // at least 1
  };

  // Memory that the constructor allocates.
  static int64_t SizeBytes(const Options& options);

  explicit GroupTable(const Options& options);

  // Appends the classes of samples, num_samples altogether; below 0: a sample
  // that is never drawn.
  //   INVALID_ARGUMENT  a class is not below the number of samples
  absl::Status Append(absl::Span<const int32_t> classes);

  // Sorts the samples by class. REQUIRES: all classes were appended.
  //   INVALID_ARGUMENT  no sample has a class
  absl::Status Finish();

  // Writes samples of the groups `first`, `first` + `step`, ... of the epoch,
  // from row `first_row` on, where row r is of the group first + r / group_size
  // * step. Costs two permutations for each group. REQUIRES: Finish succeeded;
  // the groups are below 2^63.
  void Draw(uint64_t seed, uint64_t epoch, uint64_t first, uint64_t step,
            uint64_t first_row, absl::Span<int64_t> samples) const;

 private:
  const Options options_;
  std::vector<int32_t> classes_;  // by sample; empty once sorted
  // By class, without those that have none; [num_samples] at most.
  std::vector<uint32_t> samples_;
  // Class c has samples_[starts_[c]] to samples_[starts_[c + 1]].
  std::vector<uint32_t> starts_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_GROUP_TABLE_H_
