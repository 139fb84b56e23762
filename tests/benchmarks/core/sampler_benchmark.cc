// Time per sample index. Run: bazel run -c opt
// //tests/benchmarks/core:sampler_benchmark

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "server/order/sampler.h"

namespace datasetd {
namespace {

// Args: num_samples, batch_size, world_size, shuffle.
void BM_Fill(benchmark::State& state) {
  const int64_t batch_size = state.range(1);
  auto sampler = Sampler::Create({.num_samples = state.range(0),
                                  .batch_size = batch_size,
                                  .shuffle = state.range(3) != 0,
                                  .drop_last = true,
                                  .world_size = state.range(2)});
  std::vector<int64_t> indices(batch_size);
  const int64_t num_batches = (*sampler)->batches_per_epoch();
  (*sampler)->Fill(0, 0, absl::MakeSpan(indices));  // makes the table
  int64_t batch = 0;
  for (auto _ : state) {
    (*sampler)->Fill(0, batch, absl::MakeSpan(indices));
    benchmark::DoNotOptimize(indices.data());
    if (++batch == num_batches) batch = 0;
  }
  state.SetItemsProcessed(state.iterations() * batch_size);
  state.counters["s_per_index"] = benchmark::Counter(
      static_cast<double>(state.iterations() * batch_size),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Fill)
    ->ArgNames({"samples", "batch", "world", "shuffle"})
    ->Args({50000, 512, 1, 0})
    ->Args({50000, 512, 1, 1})
    ->Args({50000, 512, 8, 1})
    ->Args({65537, 512, 1, 1})
    ->Args({1281167, 512, 1, 1})
    ->Args({1281167, 512, 8, 1})
    ->Args({1281167, 1, 1, 1})
    ->Args({0xFFFFFFFF, 512, 1, 1});

// Args: num_samples.
void BM_MakeTable(benchmark::State& state) {
  auto sampler = Sampler::Create(
      {.num_samples = state.range(0), .batch_size = 1, .shuffle = true});
  uint64_t epoch = 0;
  for (auto _ : state) (*sampler)->Prepare(++epoch, 0);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_MakeTable)->Arg(1000)->Arg(50000)->Arg(65536);

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();
