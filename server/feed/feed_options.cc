#include "server/feed/feed_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/params.h"
#include "server/order/client_order.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNameLength = 128;
constexpr int kMaxNamedDatasets = 3;

absl::Status CheckMixture(const v1::FeedOptions& options) {
  const v1::Mixture& mixture = options.mixture();
  if (mixture.parts_size() < 1 || mixture.parts_size() > kMaxMixtureParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("mixture: there are ", mixture.parts_size(),
                     " datasets; there can be 1 to ", kMaxMixtureParts,
                     ": push some of them as one, with datasetd.concat"));
  }
  if (!options.dataset().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset: '", options.dataset(),
                     "' is set beside a mixture, whose parts name all of its "
                     "datasets: leave it empty"));
  }
  if (options.has_client_order() || options.has_weighted_order() ||
      options.subset_size() != 0 || options.has_group_order() ||
      options.has_rows_per_epoch()) {
    return absl::InvalidArgumentError(
        "mixture: the order is made of whole datasets, so that subset_size, "
        "weighted_order, client_order, group_order and rows_per_epoch must not "
        "be set");
  }
  const auto& parts = mixture.parts();
  const bool has_ratios =
      std::any_of(parts.begin(), parts.end(),
                  [](const auto& part) { return part.ratio() != 0; });
  if (!has_ratios &&
      (mixture.num_rows() != 0 || mixture.is_fixed_per_batch())) {
    return absl::InvalidArgumentError(
        "mixture: num_rows and is_fixed_per_batch are for ratios, and all "
        "ratios are 0: give each dataset a ratio");
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const v1::FeedOptions& options) {
  const v1::GroupOrder& order = options.group_order();
  if (order.group_size() < 1 ||
      options.batch_size() % order.group_size() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("group_order: group_size is ", order.group_size(),
                     "; it must be at least 1 and divide batch_size, the ",
                     options.batch_size(), " rows of a batch"));
  }
  if (options.shuffle() || options.has_weighted_order() ||
      options.has_mixture() || options.has_rows_per_epoch()) {
    return absl::InvalidArgumentError(
        "group_order: it is an order of its own, so that shuffle, "
        "weighted_order, mixture and rows_per_epoch must not be set");
  }
  if (options.has_client_order() && order.has_num_groups()) {
    return absl::InvalidArgumentError(
        "group_order: the client makes the order, so that num_groups must not "
        "be set");
  }
  return absl::OkStatus();
}

absl::Status CheckWindows(const v1::FeedOptions& options) {
  const v1::WindowOrder& order = options.window_order();
  if (options.has_mixture() || options.has_weighted_order() ||
      options.has_group_order() || options.has_rows_per_epoch() ||
      (options.subset_size() != 0 && !order.has_documents())) {
    return absl::InvalidArgumentError(
        "window_order: windows are of a whole dataset, so that mixture, "
        "weighted_order, group_order, subset_size and rows_per_epoch must not "
        "be set");
  }
  if (order.has_documents() && options.subset_size() == 0) {
    return absl::InvalidArgumentError(
        "window_order: documents need subset_size, their number, and their "
        "first steps as the subset");
  }
  const bool has_order = order.order_case() != v1::WindowOrder::ORDER_NOT_SET;
  if (has_order == options.has_client_order()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: the order is ",
        has_order ? "the client's, so that neither blocks, random nor "
                    "documents may be set"
                  : "not set: set blocks, random or documents"));
  }
  if (order.has_random() && options.shuffle()) {
    return absl::InvalidArgumentError(
        "window_order: random windows are an order of their own, so that "
        "shuffle must not be set");
  }
  return absl::OkStatus();
}

}  // namespace

std::string DatasetName(const v1::FeedOptions& options) {
  if (!options.has_mixture()) return options.dataset();
  const auto& parts = options.mixture().parts();
  std::string name;
  for (int d = 0; d < std::min(parts.size(), kMaxNamedDatasets); ++d) {
    absl::StrAppend(&name, d == 0 ? "" : " + ", parts[d].dataset());
  }
  if (parts.size() > kMaxNamedDatasets) {
    absl::StrAppend(&name, " + ", parts.size() - kMaxNamedDatasets, " more");
  }
  return name;
}

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
  if (options.has_window_order()) {
    DATASETD_RETURN_IF_ERROR(CheckWindows(options));
  }
  if (options.has_mixture()) return CheckMixture(options);
  if (options.has_weighted_order() &&
      (options.shuffle() || options.has_client_order() ||
       options.subset_size() != 0)) {
    return absl::InvalidArgumentError(
        "weighted_order: samples are drawn by weight, so that shuffle, "
        "subset_size and client_order must not be set; lists_samples is for "
        "weights of "
        "some samples");
  }
  if (options.has_group_order()) {
    DATASETD_RETURN_IF_ERROR(CheckGroups(options));
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
