// Bytes per second of float32 stores past the caches, which is how chains write
// their output on the host: with as many threads as there are cores, no chain
// writes faster.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "cuda/kernels/host/host_targets.h"

// Compiles this file once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/benchmarks/kernels/store_benchmark.cc"
#include "hwy/foreach_target.h"
// For each of them:
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace datasetd::HWY_NAMESPACE {

void StreamOnes(float* to, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> tag;
  const auto ones = hn::Set(tag, 1.0f);
  for (size_t i = 0; i < count; i += hn::Lanes(tag)) {
    hn::Stream(ones, tag, to + i);
  }
}

}  // namespace datasetd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace datasetd {
namespace {

void BM_Stream(benchmark::State& state) {
  // A batch of 32 images of 224x224x3, in four slots.
  constexpr size_t kSlotElements = size_t{32} * 224 * 224 * 3;
  constexpr size_t kNumSlots = 4;
  std::vector<float> memory(kNumSlots * kSlotElements + 16);
  auto* const slots = reinterpret_cast<float*>(
      (reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63});
  static constexpr decltype(&HWY_STATIC_DISPATCH(StreamOnes)) kStream[] =
      DATASETD_HOST_TABLE(StreamOnes);
  const auto stream = kStream[static_cast<int>(HostTargets().front())];
  size_t batch = 0;
  for (auto _ : state) {
    stream(slots + batch++ % kNumSlots * kSlotElements, kSlotElements);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(kSlotElements * sizeof(float)));
}
BENCHMARK(BM_Stream)->ThreadRange(1, 2)->UseRealTime();

}  // namespace
}  // namespace datasetd

BENCHMARK_MAIN();

#endif  // HWY_ONCE
