#include "server/readers/interleave_planes.h"

#include "cuda/kernels/host/host_targets.h"

// Compiles this file once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/readers/interleave_planes.cc"
#include "hwy/foreach_target.h"
// For each of them:
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace datasetd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void Interleave(const uint8_t* planes, size_t plane_bytes, uint8_t* pixels) {
  // Vectors of 64 bytes take longer.
  constexpr hn::CappedTag<uint8_t, 32> kTag;
  size_t i = 0;
  for (; i + hn::Lanes(kTag) <= plane_bytes; i += hn::Lanes(kTag)) {
    hn::StoreInterleaved3(
        hn::LoadU(kTag, planes + i), hn::LoadU(kTag, planes + plane_bytes + i),
        hn::LoadU(kTag, planes + 2 * plane_bytes + i), kTag, pixels + 3 * i);
  }
  for (; i < plane_bytes; ++i) {
    for (size_t p = 0; p < 3; ++p) {
      pixels[3 * i + p] = planes[p * plane_bytes + i];
    }
  }
}

}  // namespace
}  // namespace datasetd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace datasetd {

void InterleavePlanes(const uint8_t* planes, size_t plane_bytes,
                      uint8_t* pixels) {
  static constexpr void (*kInterleave[])(const uint8_t*, size_t, uint8_t*) =
      DATASETD_HOST_TABLE(Interleave);
  kInterleave[static_cast<int>(HostTargets().front())](planes, plane_bytes,
                                                       pixels);
}

}  // namespace datasetd

#endif  // HWY_ONCE
