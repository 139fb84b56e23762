#include "server/readers/interleave_planes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>

namespace datasetd {
namespace {

constexpr size_t kNumPlanes = 3;

void InterleaveFrom(size_t begin, const uint8_t* planes, size_t plane_bytes,
                    uint8_t* pixels) {
  for (size_t i = begin; i < plane_bytes; ++i) {
    for (size_t p = 0; p < kNumPlanes; ++p) {
      pixels[kNumPlanes * i + p] = planes[p * plane_bytes + i];
    }
  }
}

#if defined(__x86_64__)

constexpr size_t kLanes = 16;
constexpr uint8_t kNothing = 0x80;
using Shuffle = std::array<uint8_t, kLanes>;

// Which byte of plane `plane` goes where in part `part` of 16 pixels.
constexpr Shuffle MakeShuffle(size_t part, size_t plane) {
  Shuffle shuffle = {};
  for (size_t i = 0; i < kLanes; ++i) {
    const size_t byte = part * kLanes + i;
    shuffle[i] = byte % kNumPlanes == plane
                     ? static_cast<uint8_t>(byte / kNumPlanes)
                     : kNothing;
  }
  return shuffle;
}

alignas(kLanes) constexpr Shuffle kShuffles[kNumPlanes][kNumPlanes] = {
    {MakeShuffle(0, 0), MakeShuffle(0, 1), MakeShuffle(0, 2)},
    {MakeShuffle(1, 0), MakeShuffle(1, 1), MakeShuffle(1, 2)},
    {MakeShuffle(2, 0), MakeShuffle(2, 1), MakeShuffle(2, 2)},
};

// Returns the number of pixels done, a multiple of 16.
__attribute__((target("ssse3"))) size_t InterleaveSsse3(const uint8_t* planes,
                                                        size_t plane_bytes,
                                                        uint8_t* pixels) {
  size_t i = 0;
  for (; i + kLanes <= plane_bytes; i += kLanes) {
    __m128i from[kNumPlanes];
    for (size_t p = 0; p < kNumPlanes; ++p) {
      from[p] = _mm_loadu_si128(
          reinterpret_cast<const __m128i*>(planes + p * plane_bytes + i));
    }
    for (size_t part = 0; part < kNumPlanes; ++part) {
      __m128i to = _mm_setzero_si128();
      for (size_t p = 0; p < kNumPlanes; ++p) {
        const __m128i shuffle = _mm_load_si128(
            reinterpret_cast<const __m128i*>(kShuffles[part][p].data()));
        to = _mm_or_si128(to, _mm_shuffle_epi8(from[p], shuffle));
      }
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(pixels + kNumPlanes * i + part * kLanes),
          to);
    }
  }
  return i;
}

bool HasSsse3() {
  static const bool has = __builtin_cpu_supports("ssse3");
  return has;
}

#endif

}  // namespace

void InterleavePlanes(const uint8_t* planes, size_t plane_bytes,
                      uint8_t* pixels) {
  size_t done = 0;
#if defined(__x86_64__)
  if (HasSsse3()) done = InterleaveSsse3(planes, plane_bytes, pixels);
#endif
  InterleaveFrom(done, planes, plane_bytes, pixels);
}

}  // namespace datasetd
