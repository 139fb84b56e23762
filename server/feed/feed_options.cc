#include "server/feed/feed_options.h"

#include "absl/strings/str_cat.h"
#include "server/feed/client_order.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNameLength = 128;

}  // namespace

absl::Status CheckFeedOptions(const v1::FeedOptions& options) {
  if (options.has_prefetch() &&
      (options.prefetch() < 1 || options.prefetch() > kMaxPrefetch)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefetch: ", options.prefetch(), " is out of range; 1 to ",
        kMaxPrefetch, ", or unset to let the daemon choose"));
  }
  if (options.name().size() > kMaxNameLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: longer than ", kMaxNameLength, " characters"));
  }
  if (options.has_weighted_order() &&
      (options.shuffle() || options.has_client_order() ||
       options.subset_size() != 0)) {
    return absl::InvalidArgumentError(
        "weighted_order: samples are drawn by weight, so that shuffle, "
        "subset_size and client_order must not be set; lists_samples is for "
        "weights of "
        "some samples");
  }
  if (!options.has_client_order()) return absl::OkStatus();
  if (options.shuffle() || options.drop_last() || options.subset_size() != 0 ||
      options.first_position() != 0 || options.unpadded() ||
      options.has_rows_per_epoch()) {
    return absl::InvalidArgumentError(
        "client_order: the client makes the order, so that shuffle, drop_last, "
        "subset_size, first_position, unpadded and rows_per_epoch must not be "
        "set");
  }
  if (options.batch_size() < 1 ||
      options.batch_size() > ClientOrder::kMaxBatchSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", options.batch_size(),
                     "; with client_order it must be within 1..",
                     ClientOrder::kMaxBatchSize));
  }
  if (options.rank() >= WorldSize(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", options.rank(), ", world_size ", WorldSize(options),
        "; rank must be within 0..", "world_size - 1"));
  }
  return absl::OkStatus();
}

}  // namespace datasetd
