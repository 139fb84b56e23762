// The request of a feed, a v1::FeedOptions: its checks, and what it means where
// the message alone does not say it.

#ifndef DATASETD_SERVER_FEED_FEED_OPTIONS_H_
#define DATASETD_SERVER_FEED_FEED_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd {

inline constexpr uint32_t kMaxPrefetch = 62;

inline uint32_t WorldSize(const v1::FeedOptions& options) {
  return options.world_size() == 0 ? 1 : options.world_size();
}

// The dataset that the feed draws from, or those of its mixture as one name:
// "a + b"; at most three are named.
std::string DatasetName(const v1::FeedOptions& options);

// Checks what does not depend on the dataset, except for `fields`, which
// CompleteFieldOptions checks. Returns INVALID_ARGUMENT if an option is
// invalid.
absl::Status CheckFeedOptions(const v1::FeedOptions& options);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_OPTIONS_H_
