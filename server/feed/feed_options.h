// The options of a feed, as requested by a client.

#ifndef DATASETD_SERVER_FEED_FEED_OPTIONS_H_
#define DATASETD_SERVER_FEED_FEED_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cuda/device/backend.h"
#include "server/feed/feed_fields.h"
#include "server/feed/feed_position.h"

namespace datasetd {

struct FeedOptions {
  std::string name;  // a label, for display only
  std::string dataset;
  std::string device;  // empty: the dataset's device
  int64_t batch_size = 0;
  bool shuffle = false;
  uint64_t seed = 0;
  bool drop_last = false;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t prefetch = 0;  // 0: chosen by the daemon
  FeedPosition start;
  uint64_t first_position = 0;  // of the global order, where each epoch begins
  // Fields of a batch, in order; empty: all fields of the dataset.
  std::vector<std::string> field_names;
  std::map<std::string, FeedFieldOptions> fields;
  std::vector<ExportKind> excluded_exports;
  // Sample indices; nullopt: all samples.
  std::optional<std::vector<int64_t>> subset;
  // The client sends the order by SendIndices.
  bool has_client_order = false;
  bool draws_by_sample = false;
  // The client sends weights by SendWeights; see v1::WeightedOrder.
  struct WeightedOrder {
    uint64_t num_samples = 0;
    bool lists_samples = false;
    std::optional<uint64_t> num_draws;  // nullopt: num_samples
  };
  std::optional<WeightedOrder> weighted_order;
  // Fails instead of evicting unused datasets.
  bool keeps_datasets = false;
  // The transforms as requested, for FeedTable::Transforms; nullopt: too long
  // to keep.
  std::optional<std::string> transforms_message;
};

// Checks what does not depend on the dataset. Returns INVALID_ARGUMENT if an
// option is invalid.
absl::Status CheckFeedOptions(const FeedOptions& options);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_OPTIONS_H_
