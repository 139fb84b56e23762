// Measures a ready batch's cost to the client: Next, and releasing it.
//
//   client_cost ADDRESS DATASET [--bursts=N] [--pause_us=N]
//
// Batches from a feed with deep prefetch, with pauses in which the daemon
// refills it and falls asleep. A Next that had to wait is counted apart. Prints
// one JSON object, times in nanoseconds.
//
//   "paced"  one batch after every pause, as a training step takes it: caches
//            are cold, and a release that finds the daemon asleep wakes it
//   "burst"  kBurst batches after every pause, but for the first of them

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace datasetd {
namespace {

constexpr int kPrefetch = 32;
constexpr int kBurst = 16;

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Times {
  std::vector<int64_t> next, release, both;
};

int64_t Percentile(std::vector<int64_t> values, double share) {
  if (values.empty()) return -1;
  std::sort(values.begin(), values.end());
  const auto at =
      static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(values.size() - 1, at)];
}

void Print(const char* name, const std::vector<int64_t>& values) {
  std::printf("\"%s\": {\"p50\": %lld, \"p99\": %lld}, ", name,
              static_cast<long long>(Percentile(values, 0.5)),
              static_cast<long long>(Percentile(values, 0.99)));
}

void Print(const char* name, const Times& times) {
  std::printf("\"%s\": {", name);
  Print("next", times.next);
  Print("release", times.release);
  Print("both", times.both);
  std::printf("\"count\": %zu}, ", times.both.size());
}

absl::Status Run(const std::string& address, const std::string& dataset,
                 int64_t num_bursts, absl::Duration pause) {
  ClientOptions client_options;
  client_options.address = address;
  absl::StatusOr<Client> client = Client::Connect(client_options);
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::Dataset> held = client->GetDataset(dataset);
  if (!held.ok()) return held.status();
  v1::FeedOptions options;
  options.set_dataset(dataset);
  options.set_batch_size(64);
  options.set_shuffle(true);
  options.set_prefetch(kPrefetch);
  absl::StatusOr<client::Feed> feed = client->OpenFeed(options);
  if (!feed.ok()) return feed.status();

  Times paced, burst;
  int64_t num_waited = 0;
  uint64_t sum = 0;
  for (int64_t round = -10; round < 2 * num_bursts; ++round) {
    absl::SleepFor(pause);
    const bool is_burst = round >= num_bursts;
    for (int i = 0; i < (is_burst ? kBurst : 1); ++i) {
      const absl::Duration waited = feed->waited();
      const int64_t start = Now();
      absl::StatusOr<client::Batch> batch = feed->Next();
      const int64_t taken = Now();
      if (!batch.ok()) return batch.status();
      sum += *static_cast<const uint8_t*>(batch->field(0).data);
      const int64_t used = Now();
      batch->Release();
      const int64_t end = Now();
      // Warming up; and the first of a burst is as a paced one.
      if (round < 0 || (is_burst && i == 0)) continue;
      if (feed->waited() != waited) {
        ++num_waited;
        continue;
      }
      Times& times = is_burst ? burst : paced;
      times.next.push_back(taken - start);
      times.release.push_back(end - used);
      times.both.push_back(taken - start + end - used);
    }
  }
  const int64_t clock_start = Now();
  for (int i = 0; i < 1000; ++i) sum += static_cast<uint64_t>(Now() & 1);
  const int64_t clock_cost = (Now() - clock_start) / 1000;
  std::printf("{");
  Print("paced", paced);
  Print("burst", burst);
  std::printf("\"waited\": %lld, \"clock\": %lld, \"sum\": %llu}\n",
              static_cast<long long>(num_waited),
              static_cast<long long>(clock_cost),
              static_cast<unsigned long long>(sum));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  int64_t num_bursts = 1000;
  int64_t pause_us = 2000;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--bursts=")) {
      if (!absl::SimpleAtoi(argument, &num_bursts)) return 2;
    } else if (absl::ConsumePrefix(&argument, "--pause_us=")) {
      if (!absl::SimpleAtoi(argument, &pause_us)) return 2;
    } else {
      names.emplace_back(argv[i]);
    }
  }
  if (names.size() != 2) {
    std::fprintf(stderr,
                 "usage: client_cost ADDRESS DATASET [--bursts=N] "
                 "[--pause_us=N]\n");
    return 2;
  }
  const absl::Status status =
      Run(names[0], names[1], num_bursts, absl::Microseconds(pause_us));
  if (!status.ok()) {
    std::fprintf(stderr, "client_cost: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
