#include "client/ctl/commands/top_view.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

using ::testing::HasSubstr;

v1::Feed MakeFeed(uint64_t id, uint64_t samples, double client_wait,
                  double daemon_wait) {
  v1::Feed feed;
  feed.set_feed_id(id);
  feed.set_name("job");
  feed.set_dataset("d");
  feed.set_num_samples(samples);
  feed.set_num_batches(samples / 100);
  feed.set_client_wait_seconds(client_wait);
  feed.set_daemon_wait_seconds(daemon_wait);
  feed.set_num_slots(6);
  feed.set_num_slots_held(2);
  return feed;
}

TopSample MakeSample(double seconds, std::vector<v1::Feed> feeds) {
  TopSample sample;
  sample.time = absl::FromUnixSeconds(1700000000) + absl::Seconds(seconds);
  sample.feeds = std::move(feeds);
  return sample;
}

TEST(TopViewTest, RatesAreDifferencesOverTheTimeBetween) {
  const TopSample before = MakeSample(0, {MakeFeed(7, 1000, 1, 10)});
  const TopSample now = MakeSample(2, {MakeFeed(7, 5000, 1.5, 11)});
  const auto rate = RateOf(before, now, now.feeds[0]);
  ASSERT_TRUE(rate.has_value());
  EXPECT_DOUBLE_EQ(rate->samples_per_second, 2000);
  EXPECT_DOUBLE_EQ(rate->batches_per_second, 20);
  EXPECT_DOUBLE_EQ(rate->client_wait, 0.25);
  EXPECT_DOUBLE_EQ(rate->daemon_wait, 0.5);
}

TEST(TopViewTest, ANewFeedAndAClockThatStandsStillHaveNoRate) {
  const TopSample before = MakeSample(0, {MakeFeed(7, 1000, 0, 0)});
  const TopSample later = MakeSample(1, {MakeFeed(8, 1000, 0, 0)});
  EXPECT_FALSE(RateOf(before, later, later.feeds[0]).has_value());
  const TopSample same = MakeSample(0, {MakeFeed(7, 2000, 0, 0)});
  EXPECT_FALSE(RateOf(before, same, same.feeds[0]).has_value());
}

TEST(TopViewTest, AShareIsFromZeroToOneWhateverAClientSays) {
  const TopSample before = MakeSample(0, {MakeFeed(7, 0, 50, 0)});
  const TopSample now = MakeSample(1, {MakeFeed(7, 0, 10, 99)});
  const auto rate = RateOf(before, now, now.feeds[0]);
  ASSERT_TRUE(rate.has_value());
  EXPECT_EQ(rate->client_wait, 0);
  EXPECT_EQ(rate->daemon_wait, 1);
}

TEST(TopViewTest, SaysWhoWaits) {
  EXPECT_EQ(WhoWaits({.client_wait = 0.37, .daemon_wait = 0.1}),
            "job waits 37%");
  EXPECT_EQ(WhoWaits({.client_wait = 0.02, .daemon_wait = 0.9}),
            "daemon waits 90%");
  EXPECT_EQ(WhoWaits({.client_wait = 0.04, .daemon_wait = 0.04}), "-");
}

TEST(TopViewTest, TheScreenHasEveryDatasetAndFeed) {
  TopSample before = MakeSample(0, {MakeFeed(7, 1000, 0, 0)});
  TopSample now =
      MakeSample(1, {MakeFeed(7, 2500, 0.5, 0), MakeFeed(9, 10, 0, 0)});
  v1::Dataset loading;
  loading.set_name("train");
  loading.set_state(v1::DATASET_STATE_LOADING);
  loading.mutable_progress()->set_num_samples(200);
  loading.mutable_progress()->set_num_samples_loaded(50);
  v1::Dataset ready;
  ready.set_name("test");
  ready.set_state(v1::DATASET_STATE_READY);
  v1::Dataset scanned;
  scanned.set_state(v1::DATASET_STATE_LOADING);
  scanned.mutable_progress()->set_is_scanning(true);
  now.datasets = {loading, ready, scanned};
  const std::string text = TopText(before, now);
  EXPECT_THAT(text, HasSubstr("1500 samples/s"));
  EXPECT_THAT(text, HasSubstr("job waits 50%"));
  EXPECT_THAT(text, HasSubstr("loading 25%"));
  EXPECT_THAT(text, HasSubstr("scanning"));
  EXPECT_THAT(text, HasSubstr("ready"));
  EXPECT_THAT(text, HasSubstr("2/6"));
  EXPECT_THAT(TopText(now, MakeSample(2, {})), HasSubstr("no feeds"));
}

TEST(TopViewTest, AScreenHoldsWhatThereIsRoomFor) {
  const std::string text = "one\ntwo\nthree\nfour\n";
  EXPECT_EQ(FitTo(4, 80, text), "one\ntwo\nthree\nfour");
  EXPECT_EQ(FitTo(3, 5, text), "one\ntwo\n... 2");
  EXPECT_THAT(FitTo(3, 80, text), HasSubstr("... 2 more lines"));
  // Characters, not bytes.
  EXPECT_EQ(FitTo(9, 3, "\xc3\xa4\xc3\xb6\xc3\xbcx\nab\n"),
            "\xc3\xa4\xc3\xb6\xc3\xbc\nab");
}

TEST(TopViewTest, JsonIsOneLineAndNullWhereNothingIsKnown) {
  const TopSample before = MakeSample(0, {MakeFeed(7, 1000, 0, 0)});
  const TopSample now =
      MakeSample(2, {MakeFeed(7, 2000, 1, 0), MakeFeed(9, 10, 0, 0)});
  const std::string text = TopJson(before, now);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["feeds"][0]["samples_per_second"], 500.0);
  EXPECT_EQ(json["feeds"][0]["client_wait_ratio"], 0.5);
  EXPECT_EQ(json["feeds"][1]["feed_id"], 9);
  EXPECT_TRUE(json["feeds"][1]["samples_per_second"].is_null());
}

}  // namespace
}  // namespace datasetd::ctl
