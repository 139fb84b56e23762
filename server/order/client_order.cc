#include "server/order/client_order.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// The row is one 32-bit word of the Philox counter.
constexpr uint64_t kMaxRow = 0xFFFFFFFFu;

std::string Text(const FeedPosition& position) {
  return absl::StrCat("batch ", position.batch, " of epoch ", position.epoch);
}

}  // namespace

int64_t ClientOrder::SizeBytes(const Options& options) {
  return options.capacity *
         (static_cast<int64_t>(sizeof(Batch)) +
          options.batch_size * static_cast<int64_t>(sizeof(uint32_t)));
}

ClientOrder::ClientOrder(const Options& options)
    : options_(options),
      next_(options.start),
      batches_(options.capacity),
      rows_(options.capacity * options.batch_size) {}

absl::Status ClientOrder::Check(const Block& block) const {
  if (block.batch_sizes.empty()) {
    return absl::InvalidArgumentError("batch_sizes: the block has no batch");
  }
  if (block.batch_sizes.size() > options_.capacity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the block has ", block.batch_sizes.size(),
                     " batches; the feed keeps at most ", options_.capacity,
                     " (order_capacity)"));
  }
  if (block.start.epoch > kMaxEpoch || block.start.batch > kMaxRow) {
    return absl::InvalidArgumentError(
        absl::StrCat("start: ", Text(block.start), " is out of range"));
  }
  uint64_t num_rows = 0;
  for (size_t i = 0; i < block.batch_sizes.size(); ++i) {
    const uint32_t size = block.batch_sizes[i];
    if (size == 0 || size > options_.batch_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "batch_sizes[", i, "]: ", size, " is out of range; 1 to ",
          options_.batch_size, ", the feed's batch_size"));
    }
    if (size % options_.group_size != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "batch_sizes[", i, "]: ", size, " rows are no groups of ",
          options_.group_size, ", the feed's group_size"));
    }
    num_rows += size;
  }
  if (num_rows != block.indices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices: there are ", block.indices.size(),
                     ", the batch_sizes sum up to ", num_rows));
  }
  for (size_t i = 0; i < block.indices.size(); ++i) {
    const int64_t index = block.indices[i];
    if (index < 0 || index >= options_.num_samples) {
      return absl::OutOfRangeError(absl::StrCat(
          "indices[", i, "]: ", index, " is out of range; the dataset has ",
          options_.num_samples, " samples, counted from 0"));
    }
  }
  // Cannot overflow: num_rows is at most capacity * batch_size.
  if (block.first_row > kMaxRow ||
      block.first_row + num_rows - 1 >
          (kMaxRow - options_.rank) / options_.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_row: ", block.first_row, " and ", num_rows,
        " more are out of range; the epoch of all ranks has at most 2^32 "
        "rows"));
  }
  return absl::OkStatus();
}

absl::Status ClientOrder::Append(const Block& block) {
  DATASETD_RETURN_IF_ERROR(Check(block));
  MutexLock lock(&mutex_);
  const uint64_t generation = generation_.load();
  uint32_t num_waiting = num_waiting_.load();
  if (block.generation < generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("generation: the block is of ", block.generation,
                     ", which the seek to ", generation, " has ended"));
  }
  if (block.generation > generation) {
    num_waiting = 0;
  } else if (const bool goes_on = block.start.epoch == next_.epoch &&
                                  block.start.batch == next_.batch;
             !goes_on &&
             !(block.start.epoch > next_.epoch && block.start.batch == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "start: the block begins with ", Text(block.start), ", but ",
        Text(next_), " is next; a seek has a new generation"));
  }
  const auto num_batches = static_cast<uint32_t>(block.batch_sizes.size());
  if (num_waiting + num_batches > options_.capacity) {
    return absl::ResourceExhaustedError(absl::StrCat(
        num_waiting, " batches wait to be made and ", num_batches,
        " more were sent; the feed keeps at most ", options_.capacity,
        " (order_capacity): send more when batches have come"));
  }
  const int64_t* index = block.indices.data();
  uint64_t row = block.first_row;
  for (uint32_t i = 0; i < num_batches; ++i) {
    const uint32_t place = (first_ + num_waiting + i) % options_.capacity;
    const uint32_t size = block.batch_sizes[i];
    Batch& batch = batches_[place];
    batch.position = {block.start.epoch, block.start.batch + i};
    batch.first_row =
        options_.rank + static_cast<int64_t>(row) * options_.world_size;
    batch.num_samples = size;
    std::copy(index, index + size, rows_.begin() + place * options_.batch_size);
    index += size;
    row += size;
  }
  next_ = {block.start.epoch, block.start.batch + num_batches};
  generation_.store(block.generation);
  num_waiting_.store(num_waiting + num_batches);
  return absl::OkStatus();
}

bool ClientOrder::Take(uint64_t generation, absl::Span<int64_t> indices,
                       Batch* batch) {
  TryMutexLock lock(&mutex_);
  if (!lock.is_locked()) return false;
  const uint32_t num_waiting = num_waiting_.load();
  if (num_waiting == 0 || generation_.load() != generation) return false;
  *batch = batches_[first_];
  const auto row = rows_.begin() + first_ * options_.batch_size;
  std::copy(row, row + batch->num_samples, indices.begin());
  first_ = (first_ + 1) % options_.capacity;
  num_waiting_.store(num_waiting - 1);
  return true;
}

}  // namespace datasetd
