// Measures a job's cost before its first batch: a session, a call, a feed.
// Needs a daemon that may read the temporary directory:
//
//   bazel build //client/ctl:datasetctl //server:datasetd
//     //tests/benchmarks/client:control_benchmark
//   bazel-bin/client/ctl/datasetctl run --device cpu
//     --daemon bazel-bin/server/datasetd
//     -- bazel-bin/tests/benchmarks/client/control_benchmark

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "client/client.h"
#include "client/feed/feed.h"

namespace datasetd {
namespace {

constexpr char kDataset[] = "control-benchmark";
constexpr int kSamples = 10000;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// One for all, which holds the dataset.
Client& SharedClient() {
  static Client* const client = [] {
    const std::filesystem::path directory =
        std::filesystem::temp_directory_path() / "datasetd-control-benchmark";
    std::filesystem::create_directories(directory);
    {
      std::ofstream file(directory / "test_batch.bin", std::ios::binary);
      const std::string record(1 + 3 * 32 * 32, '\1');
      for (int i = 0; i < kSamples; ++i) file << record;
    }
    auto* const made = new Client(Must(Client::Connect({})));
    v1::DatasetSpec spec;
    spec.set_name(kDataset);
    spec.set_format("cifar10");
    spec.set_path(directory.string());
    spec.set_split("test");
    Must(made->LoadDataset(spec));
    std::filesystem::remove_all(directory);
    return made;
  }();
  return *client;
}

// The attach socket's HELLO, the channel, and both ends again.
void BM_ConnectAndClose(benchmark::State& state) {
  SharedClient();
  for (auto _ : state) Must(Client::Connect({}));
}
BENCHMARK(BM_ConnectAndClose)->Unit(benchmark::kMicrosecond)->UseRealTime();

void BM_GetStatus(benchmark::State& state) {
  Client& connection = SharedClient();
  for (auto _ : state) benchmark::DoNotOptimize(Must(connection.GetStatus()));
}
BENCHMARK(BM_GetStatus)->Unit(benchmark::kMicrosecond)->UseRealTime();

// Args: batch size. OpenFeed, the lease, the mapping; and the end of it.
void BM_OpenFeedAndClose(benchmark::State& state) {
  Client& connection = SharedClient();
  v1::FeedOptions options;
  options.set_dataset(kDataset);
  options.set_batch_size(static_cast<uint32_t>(state.range(0)));
  options.set_shuffle(true);
  for (auto _ : state) Must(connection.OpenFeed(options)).Close();
}
BENCHMARK(BM_OpenFeedAndClose)
    ->ArgName("batch")
    ->Arg(1)
    ->Arg(512)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Args: batch size. The same, up to a first batch.
void BM_OpenFeedToFirstBatch(benchmark::State& state) {
  Client& connection = SharedClient();
  v1::FeedOptions options;
  options.set_dataset(kDataset);
  options.set_batch_size(static_cast<uint32_t>(state.range(0)));
  options.set_shuffle(true);
  for (auto _ : state) {
    client::Feed feed = Must(connection.OpenFeed(options));
    benchmark::DoNotOptimize(Must(feed.Next()));
  }
}
BENCHMARK(BM_OpenFeedToFirstBatch)
    ->ArgName("batch")
    ->Arg(512)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();
