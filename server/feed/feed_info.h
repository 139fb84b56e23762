// State and statistics of feeds, as shown by ListFeeds and the metrics.

#ifndef DATASETD_SERVER_FEED_FEED_INFO_H_
#define DATASETD_SERVER_FEED_FEED_INFO_H_

#include <cstdint>
#include <string>

#include "datasetd/v1/feed.pb.h"
#include "server/dataset/caller.h"
#include "server/feed/latency_histogram.h"

namespace datasetd {

// See feed_table.h.
enum class FeedPhase { kPending, kAttached, kEnding, kLingering };

struct FeedInfo {
  v1::Feed feed;          // without `hand_over`
  Visibility visibility;  // of the dataset
  std::string device;
  Caller owner;
  FeedPhase phase = FeedPhase::kPending;
  // Samples that the feed's chains work on at once, and how many the device
  // could; 0 without chains, and on the host.
  int num_teams = 0;
  int max_teams = 0;
  LatencyHistogram::Snapshot hand_over;
};

// Totals over the feeds of one device, including those that have ended.
struct FeedTotals {
  uint64_t num_opened = 0;
  uint64_t num_batches = 0;
  uint64_t num_samples = 0;
  uint64_t num_ignored_releases = 0;
  uint64_t num_ignored_seeks = 0;
  double client_wait_seconds = 0;  // as reported by the clients
  double daemon_wait_seconds = 0;
  uint64_t num_throttled_wakes = 0;
  LatencyHistogram::Snapshot hand_over;

  // Adds one feed's counters.
  void Add(const FeedInfo& info) {
    const v1::Feed& feed = info.feed;
    num_batches += feed.num_batches();
    num_samples += feed.num_samples();
    num_ignored_releases += feed.num_ignored_releases();
    num_ignored_seeks += feed.num_ignored_seeks();
    client_wait_seconds += feed.client_wait_seconds();
    daemon_wait_seconds += feed.daemon_wait_seconds();
    hand_over.Add(info.hand_over);
  }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_INFO_H_
