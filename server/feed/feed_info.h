// State and statistics of feeds, as shown by ListFeeds and the metrics.

#ifndef DATASETD_SERVER_FEED_FEED_INFO_H_
#define DATASETD_SERVER_FEED_FEED_INFO_H_

#include <cstdint>
#include <string>

#include "server/dataset/caller.h"
#include "server/dataset/visibility.h"
#include "server/feed/feed_position.h"
#include "server/feed/latency_histogram.h"

namespace datasetd {

// See feed_table.h.
enum class FeedPhase { kPending, kAttached, kEnding, kLingering };

struct FeedInfo {
  uint64_t id = 0;
  std::string name;
  std::string dataset;
  Visibility visibility;  // of the dataset
  std::string device;
  Caller owner;
  FeedPhase phase = FeedPhase::kPending;
  int64_t batch_size = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  uint64_t seed = 0;
  uint64_t slab_bytes = 0;
  uint32_t num_slots = 0;
  // Samples that the feed's chains work on at once, and how many the device
  // could; 0 without chains, and on the host.
  int num_teams = 0;
  int max_teams = 0;
  // From FeedStats.
  FeedPosition next;
  uint64_t num_batches = 0;
  uint64_t num_samples = 0;
  uint32_t num_slots_held = 0;
  uint64_t num_ignored_releases = 0;
  uint64_t num_ignored_seeks = 0;
  uint64_t num_launches = 0;
  double client_wait_seconds = 0;  // as the client reports, at most the age
  double daemon_wait_seconds = 0;
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
    num_batches += info.num_batches;
    num_samples += info.num_samples;
    num_ignored_releases += info.num_ignored_releases;
    num_ignored_seeks += info.num_ignored_seeks;
    client_wait_seconds += info.client_wait_seconds;
    daemon_wait_seconds += info.daemon_wait_seconds;
    hand_over.Add(info.hand_over);
  }
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_INFO_H_
