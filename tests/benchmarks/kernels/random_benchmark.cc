// Time of a Philox block and of a permuted index. Run:
// bazel run //tests/benchmarks/kernels:random_benchmark

#include <cstdint>

#include "benchmark/benchmark.h"
#include "cuda/kernels/math/permutation.h"
#include "cuda/kernels/math/random.h"

namespace datasetd {
namespace {

void BM_Draw(benchmark::State& state) {
  uint32_t sample = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Draw(1, 0, 2, 3, sample++));
  }
  state.SetItemsProcessed(state.iterations() * 4);  // words
}
BENCHMARK(BM_Draw);

// Args: n.
void BM_KeyedPermutation(benchmark::State& state) {
  const uint32_t n = static_cast<uint32_t>(state.range(0));
  const KeyedPermutation permutation(1, 2, n);
  uint32_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(permutation(position));
    if (++position == n) position = 0;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_KeyedPermutation)
    ->ArgName("n")
    ->Arg(65537)
    ->Arg(1281167)
    ->Arg(0xFFFFFFFF);

void BM_MakeKeyedPermutation(benchmark::State& state) {
  uint64_t epoch = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(KeyedPermutation(1, epoch++, 1281167));
  }
}
BENCHMARK(BM_MakeKeyedPermutation);

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();
