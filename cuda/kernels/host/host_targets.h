// Instruction sets that the host's vector code is compiled for. A source that
// contains vector code includes this before Highway's foreach_target.h.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_TARGETS_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_TARGETS_H_

#include <cstdint>
#include <vector>

// Of a build that is to be quick, those that this skips, too. See .bazelrc.
#ifndef DATASETD_SKIPPED_TARGETS
#define DATASETD_SKIPPED_TARGETS 0
#endif
// SSSE3 alone is rare. Vectors of SVE have no fixed size, so that they cannot
// be members or elements; NEON serves their processors.
#define HWY_DISABLED_TARGETS                                     \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   DATASETD_SKIPPED_TARGETS)
// Only AVX2's code uses AES or carry-less products, none of which we call.
#define HWY_DISABLE_PCLMUL_AES
// The checks of debug builds need libhwy; all else is in its headers.
#define HWY_IS_DEBUG_BUILD 0

// The function of each HostTarget; null for those not compiled.
#define DATASETD_HOST_TABLE(function)                            \
  {                                                              \
    HWY_CHOOSE_AVX3(function), HWY_CHOOSE_AVX2(function),        \
        HWY_CHOOSE_SSE4(function), HWY_CHOOSE_FALLBACK(function) \
  }

namespace datasetd {

enum class HostTarget : uint8_t {
  kAvx512,  // F, BW, DQ and VL
  kAvx2,    // with FMA, F16C and BMI2
  kSse4,    // 4.2
  // Runs on every processor: NEON on ARM; on x86 Highway's target without
  // vector instructions.
  kBaseline,
};

// The targets that were compiled and that this processor supports, best first.
// Never empty. All of them compute the same bits.
const std::vector<HostTarget>& HostTargets();

const char* HostTargetName(HostTarget target);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_TARGETS_H_
