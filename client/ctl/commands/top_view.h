// Content of datasetctl top: the rate of each feed and who waits, computed from
// two consecutive samples of the daemon's state.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_TOP_VIEW_H_
#define DATASETD_CLIENT_CTL_COMMANDS_TOP_VIEW_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "datasetd/v1/dataset.pb.h"
#include "datasetd/v1/feed.pb.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd::ctl {

// The daemon's state at one time.
struct TopSample {
  absl::Time time;
  v1::GetStatusResponse status;
  std::vector<v1::Dataset> datasets;
  std::vector<v1::Feed> feeds;
};

// Rates of a feed between two samples.
struct FeedRate {
  double samples_per_second = 0;
  double batches_per_second = 0;
  // Fractions of the time, 0 to 1.
  double client_wait = 0;
  double daemon_wait = 0;
};

// Returns nullopt if the feed is new or no time has passed.
std::optional<FeedRate> RateOf(const TopSample& before, const TopSample& now,
                               const v1::Feed& feed);

// Returns "job waits 37%", "daemon waits 90%", or "-" if neither waits.
std::string WhoWaits(const FeedRate& rate);

// Returns a screen of text.
std::string TopText(const TopSample& before, const TopSample& now);

// Truncates `text` to lines of at most `num_columns` characters and to at most
// `num_rows` lines (at least two), the last of which tells how many were left
// out.
std::string FitTo(int num_rows, int num_columns, const std::string& text);

// Returns one line of JSON: {"time", "datasets": [...], "feeds": [...]}. The
// rates of a new feed are null.
std::string TopJson(const TopSample& before, const TopSample& now);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_TOP_VIEW_H_
