#include "server/feed/latency_histogram.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

// The one bucket that is not empty.
size_t OnlyBucket(const LatencyHistogram::Snapshot& snapshot) {
  const auto found =
      std::find_if(snapshot.counts.begin(), snapshot.counts.end(),
                   [](uint64_t count) { return count > 0; });
  EXPECT_EQ(std::accumulate(snapshot.counts.begin(), snapshot.counts.end(),
                            uint64_t{0}),
            *found);
  return static_cast<size_t>(found - snapshot.counts.begin());
}

TEST(LatencyHistogramTest, ABoundBelongsToItsBucket) {
  for (size_t i = 0; i < LatencyHistogram::kBoundsNanoseconds.size(); ++i) {
    const uint64_t bound = LatencyHistogram::kBoundsNanoseconds[i];
    LatencyHistogram at;
    at.Record(bound, 1);
    EXPECT_EQ(OnlyBucket(at.Read()), i);
    LatencyHistogram above;
    above.Record(bound + 1, 1);
    EXPECT_EQ(OnlyBucket(above.Read()), i + 1);
  }
  LatencyHistogram zero;
  zero.Record(0, 1);
  EXPECT_EQ(OnlyBucket(zero.Read()), 0);
}

TEST(LatencyHistogramTest, BoundsRise) {
  EXPECT_TRUE(std::is_sorted(LatencyHistogram::kBoundsNanoseconds.begin(),
                             LatencyHistogram::kBoundsNanoseconds.end()));
}

TEST(LatencyHistogramTest, CountsWeighAndAddUp) {
  LatencyHistogram histogram;
  histogram.Record(1000, 3);
  histogram.Record(5000, 2);
  const LatencyHistogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(snapshot.counts[0], 5);
  EXPECT_EQ(snapshot.sum_nanoseconds, 13000);
}

TEST(LatencyHistogramTest, NothingIsLostBetweenThreads) {
  LatencyHistogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) histogram.Record(15'000, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().counts[1], 40000);
  EXPECT_EQ(histogram.Read().sum_nanoseconds, 40000u * 15'000);
}

}  // namespace
}  // namespace datasetd
