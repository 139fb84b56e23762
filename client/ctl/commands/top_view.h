// What datasetctl top shows: how fast each feed is, and who waits for whom,
// from two looks at the daemon.

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

// One look.
struct TopSample {
  absl::Time time;
  v1::GetStatusResponse status;
  std::vector<v1::Dataset> datasets;
  std::vector<v1::Feed> feeds;
};

// What a feed did between two looks.
struct FeedRate {
  double samples_per_second = 0;
  double batches_per_second = 0;
  // Shares of the time, 0 to 1.
  double client_wait = 0;
  double daemon_wait = 0;
};

// Nothing if the feed was not there before, or the clock stood still.
std::optional<FeedRate> RateOf(const TopSample& before, const TopSample& now,
                               const v1::Feed& feed);

// "job waits 37%", "daemon waits 90%", or "-" where both keep up.
std::string WhoWaits(const FeedRate& rate);

// A screen of text.
std::string TopText(const TopSample& before, const TopSample& now);

// What of it a terminal has room for: lines of at most `num_columns`
// characters, at most `num_rows` of them (but two), of which the last says how
// many are left out.
std::string FitTo(int num_rows, int num_columns, const std::string& text);

// One line of JSON: {"time", "datasets": [...], "feeds": [...]}; the rates of a
// feed are null at its first look.
std::string TopJson(const TopSample& before, const TopSample& now);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_TOP_VIEW_H_
