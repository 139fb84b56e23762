#include "server/order/group_table.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "cuda/kernels/math/permutation.h"
#include "cuda/kernels/math/random.h"

namespace datasetd {
namespace {

// Twice the rounds: classes may be few, and have few samples.
using GroupPermutation = FeistelPermutation<16>;

constexpr uint32_t kClassesOpIndex = kReservedOpIndex + 3;
constexpr uint32_t kClassOpIndex = kReservedOpIndex + 4;
// Classes keep their part of all passes of an epoch, so that those of
// neighbouring groups differ at the end of a pass, too.
constexpr uint64_t kNumParts = 4;

struct Keys {
  uint64_t first;
  uint64_t second;
};

Keys DrawKeys(uint64_t seed, uint64_t epoch, uint32_t op_index, uint32_t draw) {
  const Words4 words =
      datasetd::Draw(seed, draw, op_index, static_cast<uint32_t>(epoch),
                     static_cast<uint32_t>(epoch >> 32));
  return {words.word[0] | uint64_t{words.word[1]} << 32,
          words.word[2] | uint64_t{words.word[3]} << 32};
}

// The passes of one epoch over the classes.
class ClassOrder {
 public:
  ClassOrder(uint64_t seed, uint64_t epoch, uint64_t size)
      : keys_(DrawKeys(seed, epoch, kClassesOpIndex, 0)),
        size_(size),
        order_(keys_.first, 0, static_cast<uint32_t>(size)) {}

  uint32_t operator()(uint64_t pass, uint64_t place) {
    const uint64_t part = (kNumParts * (place + 1) - 1) / size_;
    const uint64_t begin = part * size_ / kNumParts;
    const uint64_t number = pass * kNumParts + part;
    if (!in_part_.has_value() || number_ != number) {
      const uint64_t end = (part + 1) * size_ / kNumParts;
      in_part_.emplace(keys_.second, number,
                       static_cast<uint32_t>(end - begin));
      number_ = number;
    }
    return order_(static_cast<uint32_t>(
        begin + (*in_part_)(static_cast<uint32_t>(place - begin))));
  }

 private:
  const Keys keys_;
  const uint64_t size_;
  const GroupPermutation order_;
  std::optional<GroupPermutation> in_part_;
  uint64_t number_ = 0;  // of in_part_
};

}  // namespace

int64_t GroupTable::SizeBytes(const Options& options) {
  return (3 * options.num_samples + 3) * static_cast<int64_t>(sizeof(uint32_t));
}

GroupTable::GroupTable(const Options& options) : options_(options) {
  const auto size = static_cast<size_t>(options.num_samples);
  classes_.reserve(size);
  samples_.reserve(size);
  // One for each class, of which there are `size` at most, and the ends.
  starts_.reserve(size + 3);
}

absl::Status GroupTable::Append(absl::Span<const int32_t> classes) {
  for (const int32_t number : classes) {
    if (number >= options_.num_samples) {
      return absl::InvalidArgumentError(
          absl::StrCat("classes[", classes_.size(), "] is ", number,
                       "; expected a number below ", options_.num_samples,
                       ", the number of samples, or one below 0 for a sample "
                       "without class"));
    }
    classes_.push_back(number);
  }
  return absl::OkStatus();
}

absl::Status GroupTable::Finish() {
  Require(classes_.size() == static_cast<size_t>(options_.num_samples),
          "all classes are there");
  const int32_t last = *std::max_element(classes_.begin(), classes_.end());
  if (last < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes: all ", classes_.size(),
                     " are below 0, so that no sample has a class"));
  }
  starts_.assign(static_cast<size_t>(last) + 2, 0);
  for (const int32_t number : classes_) {
    if (number >= 0) ++starts_[static_cast<size_t>(number) + 1];
  }
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  samples_.resize(starts_.back());
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] >= 0) {
      samples_[starts_[static_cast<size_t>(classes_[i])]++] =
          static_cast<uint32_t>(i);
    }
  }
  // Each start has become the end. Classes without samples are left out.
  starts_.insert(starts_.begin(), 0);
  starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
  std::vector<int32_t>().swap(classes_);
  return absl::OkStatus();
}

void GroupTable::Draw(uint64_t seed, uint64_t epoch, uint64_t first,
                      uint64_t step, uint64_t first_row,
                      absl::Span<int64_t> samples) const {
  Require(starts_.size() > 1, "the samples are sorted by class");
  const uint64_t num_classes = starts_.size() - 1;
  const auto group_size = static_cast<uint64_t>(options_.group_size);
  ClassOrder classes(seed, epoch, num_classes);
  uint64_t group = first + first_row / group_size * step;
  uint64_t place = first_row % group_size;  // within the group
  for (size_t i = 0; i < samples.size(); group += step, place = 0) {
    const uint64_t pass = group / num_classes;
    const uint32_t number = classes(pass, group % num_classes);
    const uint64_t begin = starts_[number];
    const uint64_t size = starts_[number + 1] - begin;
    const uint64_t num_groups = std::max<uint64_t>(1, size / group_size);
    const GroupPermutation order(
        DrawKeys(seed, epoch, kClassOpIndex, number).first, pass / num_groups,
        static_cast<uint32_t>(size));
    for (; place < group_size && i < samples.size(); ++place, ++i) {
      const uint64_t at = pass % num_groups * group_size + place;
      samples[i] = samples_[begin + order(static_cast<uint32_t>(at % size))];
    }
  }
}

}  // namespace datasetd
