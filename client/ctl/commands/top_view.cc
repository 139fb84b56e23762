#include "client/ctl/commands/top_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/ctl/describe.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

// Smaller shares are not shown.
constexpr double kMinShare = 0.05;

double Share(double before, double now, double seconds) {
  return std::clamp((now - before) / seconds, 0.0, 1.0);
}

std::string Count(double value) {
  return absl::StrFormat("%.*f", value < 100 ? 1 : 0, value);
}

}  // namespace

std::optional<FeedRate> RateOf(const TopSample& before, const TopSample& now,
                               const v1::Feed& feed) {
  const double seconds = absl::ToDoubleSeconds(now.time - before.time);
  const auto found = std::find_if(
      before.feeds.begin(), before.feeds.end(),
      [&](const v1::Feed& other) { return other.feed_id() == feed.feed_id(); });
  if (found == before.feeds.end() || seconds <= 0) return std::nullopt;
  FeedRate rate;
  rate.samples_per_second =
      static_cast<double>(feed.num_samples() - found->num_samples()) / seconds;
  rate.batches_per_second =
      static_cast<double>(feed.num_batches() - found->num_batches()) / seconds;
  rate.client_wait =
      Share(found->client_wait_seconds(), feed.client_wait_seconds(), seconds);
  rate.daemon_wait =
      Share(found->daemon_wait_seconds(), feed.daemon_wait_seconds(), seconds);
  return rate;
}

std::string WhoWaits(const FeedRate& rate) {
  if (std::max(rate.client_wait, rate.daemon_wait) < kMinShare) return "-";
  return rate.client_wait >= rate.daemon_wait
             ? absl::StrFormat("job waits %.0f%%", 100 * rate.client_wait)
             : absl::StrFormat("daemon waits %.0f%%", 100 * rate.daemon_wait);
}

std::string TopText(const TopSample& before, const TopSample& now) {
  double samples_per_second = 0;
  std::vector<std::vector<std::string>> feeds = {
      {"FEED", "NAME", "DATASET", "PID", "UID", "SAMPLES/S", "BATCHES/S",
       "EPOCH:BATCH", "HELD", "WHO WAITS"}};
  for (const v1::Feed& feed : now.feeds) {
    const std::optional<FeedRate> rate = RateOf(before, now, feed);
    if (rate.has_value()) samples_per_second += rate->samples_per_second;
    feeds.push_back(
        {absl::StrCat(feed.feed_id()), feed.name().empty() ? "-" : feed.name(),
         feed.dataset(), feed.pid() == 0 ? "-" : absl::StrCat(feed.pid()),
         absl::StrCat(feed.uid()),
         rate.has_value() ? Count(rate->samples_per_second) : "-",
         rate.has_value() ? Count(rate->batches_per_second) : "-",
         absl::StrCat(feed.position().epoch(), ":", feed.position().batch()),
         absl::StrCat(feed.num_slots_held(), "/", feed.num_slots()),
         rate.has_value() ? WhoWaits(*rate) : "-"});
  }
  std::vector<std::vector<std::string>> datasets = {
      {"DATASET", "STATE", "DEVICE", "SAMPLES", "MEMORY", "FEEDS", "HOLDERS"}};
  for (const v1::Dataset& dataset : now.datasets) {
    datasets.push_back(
        {dataset.name(), StateText(dataset), dataset.device(),
         absl::StrCat(dataset.num_samples()),
         FormatBytes(static_cast<uint64_t>(dataset.resident_bytes())),
         absl::StrCat(dataset.num_feeds()),
         absl::StrCat(dataset.num_holders())});
  }
  std::string text = absl::StrCat(
      "datasetd ", now.status.version(), ", up ",
      FormatSeconds(static_cast<double>(now.status.uptime().seconds())),
      now.status.is_draining() ? ", draining" : "", "; ", now.feeds.size(),
      " feeds, ", now.status.num_sessions(), " sessions, ",
      Count(samples_per_second), " samples/s\n");
  for (const v1::Device& device : now.status.devices()) {
    absl::StrAppend(&text, device.name(), ": ",
                    FormatBytes(device.dataset_bytes() + device.slab_bytes() +
                                device.scratch_bytes()),
                    " of ", FormatBytes(device.memory_budget_bytes()),
                    device.error().empty() ? "" : ", has failed", "\n");
  }
  absl::StrAppend(
      &text, "\n",
      now.datasets.empty() ? "no datasets\n" : FormatTable(datasets), "\n",
      now.feeds.empty() ? "no feeds\n" : FormatTable(feeds));
  return text;
}

std::string FitTo(int num_rows, int num_columns, const std::string& text) {
  std::vector<std::string> lines =
      absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  const auto room = static_cast<size_t>(std::max(num_rows, 2));
  if (lines.size() > room) {
    const size_t num_left_out = lines.size() - room + 1;
    lines.resize(room - 1);
    lines.push_back(absl::StrCat("... ", num_left_out,
                                 " more lines: enlarge the terminal, or see "
                                 "datasetctl feeds"));
  }
  for (std::string& line : lines) {
    int num_characters = 0;
    size_t size = 0;
    for (; size < line.size(); ++size) {
      const bool begins =
          (static_cast<unsigned char>(line[size]) & 0xc0) != 0x80;  // of UTF-8
      if (begins && num_characters++ == num_columns) break;
    }
    line.resize(size);
  }
  return absl::StrJoin(lines, "\n");
}

std::string TopJson(const TopSample& before, const TopSample& now) {
  nlohmann::json feeds = nlohmann::json::array();
  for (const v1::Feed& feed : now.feeds) {
    nlohmann::json entry = {{"feed_id", feed.feed_id()},
                            {"name", feed.name()},
                            {"dataset", feed.dataset()},
                            {"pid", feed.pid()},
                            {"uid", feed.uid()},
                            {"num_slots", feed.num_slots()},
                            {"num_slots_held", feed.num_slots_held()},
                            {"samples_per_second", nullptr},
                            {"batches_per_second", nullptr},
                            {"client_wait_ratio", nullptr},
                            {"daemon_wait_ratio", nullptr}};
    if (const auto rate = RateOf(before, now, feed); rate.has_value()) {
      entry["samples_per_second"] = rate->samples_per_second;
      entry["batches_per_second"] = rate->batches_per_second;
      entry["client_wait_ratio"] = rate->client_wait;
      entry["daemon_wait_ratio"] = rate->daemon_wait;
    }
    feeds.push_back(std::move(entry));
  }
  nlohmann::json datasets = nlohmann::json::array();
  for (const v1::Dataset& dataset : now.datasets) {
    datasets.push_back({{"name", dataset.name()},
                        {"state", v1::DatasetState_Name(dataset.state())},
                        {"device", dataset.device()},
                        {"num_samples", dataset.num_samples()},
                        {"resident_bytes", dataset.resident_bytes()},
                        {"num_feeds", dataset.num_feeds()}});
  }
  const std::string time = absl::FormatTime(now.time, absl::UTCTimeZone());
  return nlohmann::json{{"time", time},
                        {"datasets", std::move(datasets)},
                        {"feeds", std::move(feeds)}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace datasetd::ctl
