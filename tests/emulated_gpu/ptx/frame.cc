#include "tests/emulated_gpu/ptx/frame.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {
namespace {

// Predicates, 16, 32 and 64 bits.
constexpr int kNumClasses = 4;

int ClassOf(Type type) {
  switch (RegisterBytes(type)) {
    case 0:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    default:
      return 3;
  }
}

}  // namespace

int RegisterBytes(Type type) {
  return SizeBytes(type) == 1 ? 2 : SizeBytes(type);
}

RegisterFrame PlaceRegisters(const FunctionSyntax& function, const Flow& flow) {
  constexpr uint32_t kClassBytes[kNumClasses] = {
      4, 2 * kWarpLanes, 4 * kWarpLanes, 8 * kWarpLanes};
  const int num_registers = static_cast<int>(function.registers.size());
  std::vector<int> order(num_registers);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return flow.live_first[a] < flow.live_first[b];
  });
  // Linear scan: places by the end of the register that has them.
  using Taken = std::pair<int, int>;  // last statement, place
  std::priority_queue<Taken, std::vector<Taken>, std::greater<Taken>>
      taken[kNumClasses];
  int num_places[kNumClasses] = {};
  std::vector<int> places(num_registers, -1);
  for (const int reg : order) {
    if (flow.live_last[reg] < 0) continue;
    const int c = ClassOf(function.registers[reg].type);
    // A place is free behind the last statement that reads it, so that no
    // destination lies on a source.
    if (!taken[c].empty() && taken[c].top().first < flow.live_first[reg]) {
      places[reg] = taken[c].top().second;
      taken[c].pop();
    } else {
      places[reg] = num_places[c]++;
    }
    taken[c].push({flow.live_last[reg], places[reg]});
  }
  RegisterFrame frame;
  uint32_t starts[kNumClasses];
  for (int c = kNumClasses; c-- > 0;) {
    starts[c] = frame.size_bytes;
    frame.size_bytes += static_cast<uint32_t>(num_places[c]) * kClassBytes[c];
  }
  frame.size_bytes = (frame.size_bytes + 63) / 64 * 64;
  frame.offsets.resize(num_registers);
  for (int reg = 0; reg < num_registers; ++reg) {
    const int c = ClassOf(function.registers[reg].type);
    frame.offsets[reg] =
        starts[c] +
        static_cast<uint32_t>(std::max(places[reg], 0)) * kClassBytes[c];
  }
  return frame;
}

}  // namespace datasetd::emulated_gpu
