// A histogram of durations with fixed bucket bounds: 1, 2 and 5 times the
// powers of ten from 10 us to 10 s.
//
// Thread-safe. Record takes no lock and does not allocate; a concurrent
// snapshot may miss a duration that is being recorded.

#ifndef DATASETD_SERVER_FEED_LATENCY_HISTOGRAM_H_
#define DATASETD_SERVER_FEED_LATENCY_HISTOGRAM_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace datasetd {

class LatencyHistogram {
 public:
  // Upper bounds in nanoseconds, inclusive; larger values have one more bucket.
  static constexpr std::array<uint64_t, 19> kBoundsNanoseconds = {
      10'000,        20'000,        50'000,        100'000,       200'000,
      500'000,       1'000'000,     2'000'000,     5'000'000,     10'000'000,
      20'000'000,    50'000'000,    100'000'000,   200'000'000,   500'000'000,
      1'000'000'000, 2'000'000'000, 5'000'000'000, 10'000'000'000};

  struct Snapshot {
    // Per bucket, not cumulative.
    std::array<uint64_t, kBoundsNanoseconds.size() + 1> counts = {};
    uint64_t sum_nanoseconds = 0;

    void Add(const Snapshot& other) {
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
      sum_nanoseconds += other.sum_nanoseconds;
    }
  };

  void Record(uint64_t nanoseconds, uint64_t count) {
    size_t bucket = 0;
    while (bucket < kBoundsNanoseconds.size() &&
           nanoseconds > kBoundsNanoseconds[bucket]) {
      ++bucket;
    }
    counts_[bucket].fetch_add(count, std::memory_order_relaxed);
    sum_nanoseconds_.fetch_add(nanoseconds * count, std::memory_order_relaxed);
  }

  Snapshot Read() const {
    Snapshot snapshot;
    for (size_t i = 0; i < counts_.size(); ++i) {
      snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    snapshot.sum_nanoseconds = sum_nanoseconds_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  std::array<std::atomic<uint64_t>, kBoundsNanoseconds.size() + 1> counts_ = {};
  std::atomic<uint64_t> sum_nanoseconds_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_LATENCY_HISTOGRAM_H_
