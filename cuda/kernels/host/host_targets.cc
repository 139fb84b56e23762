#include "cuda/kernels/host/host_targets.h"

#include <vector>

#include "hwy/detect_targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace datasetd {
namespace {

#if HWY_ARCH_X86
// __builtin_cpu_supports of clang 14 does not know it.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// These also ask whether the system saves the registers.
bool HasSse4() { return __builtin_cpu_supports("sse4.2"); }
bool HasAvx2() {
  return HasSse4() && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && HasF16c();
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

std::vector<HostTarget> FindTargets() {
  std::vector<HostTarget> targets;
#if (HWY_TARGETS & HWY_AVX3)
  if (HasAvx512()) targets.push_back(HostTarget::kAvx512);
#endif
#if (HWY_TARGETS & HWY_AVX2)
  if (HasAvx2()) targets.push_back(HostTarget::kAvx2);
#endif
#if (HWY_TARGETS & HWY_SSE4)
  if (HasSse4()) targets.push_back(HostTarget::kSse4);
#endif
  targets.push_back(HostTarget::kBaseline);
  return targets;
}

}  // namespace

const std::vector<HostTarget>& HostTargets() {
  static const auto* const targets = new std::vector(FindTargets());
  return *targets;
}

const char* HostTargetName(HostTarget target) {
  switch (target) {
    case HostTarget::kAvx512:
      return "AVX-512";
    case HostTarget::kAvx2:
      return "AVX2";
    case HostTarget::kSse4:
      return "SSE4";
    case HostTarget::kBaseline:
      break;
  }
  return "baseline";
}

}  // namespace datasetd
