// What a client asks of a feed.

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
  std::string name;  // for people
  std::string dataset;
  std::string device;  // empty: the dataset's
  int64_t batch_size = 0;
  bool shuffle = false;
  uint64_t seed = 0;
  bool drop_last = false;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t prefetch = 0;  // 0: chosen
  FeedPosition start;
  // Of a batch, in its order; empty: all of the dataset.
  std::vector<std::string> field_names;
  std::map<std::string, FeedFieldOptions> fields;
  std::vector<ExportKind> excluded_exports;
  // Sample indices; nothing: all samples.
  std::optional<std::vector<int64_t>> subset;
  // The client makes the order: SendIndices.
  bool has_client_order = false;
  bool draws_by_sample = false;
};

// What is wrong with them whatever the dataset: INVALID_ARGUMENT.
absl::Status CheckFeedOptions(const FeedOptions& options);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_OPTIONS_H_
