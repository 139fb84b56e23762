// Bytes of samples, loaded by aligned words.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_BYTES_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_BYTES_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// Returns {high, low} >> shift, for a shift of 0 to 24.
DATASETD_HOST_DEVICE inline uint32_t FunnelShift(uint32_t low, uint32_t high,
                                                 int shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, static_cast<uint32_t>(shift));
#else
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift);
#endif
}

// Returns the bytes of {high, low} that the nibbles of `selector`, 0 to 7,
// name, the lowest first.
DATASETD_HOST_DEVICE inline uint32_t PermuteBytes(uint32_t low, uint32_t high,
                                                  uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const int byte = static_cast<int>(selector >> 4 * i & 7);
    result |= static_cast<uint32_t>(both >> 8 * byte & 0xFF) << 8 * i;
  }
  return result;
#endif
}

// Returns the bytes with the numbers `at` as a word, the first one lowest. The
// numbers are known to the compiler and lie within three words.
template <int kWords>
DATASETD_HOST_DEVICE inline uint32_t GatherBytes(
    const uint32_t (&bytes)[kWords], const int (&at)[4]) {
  int word = kWords - 2;
  DATASETD_UNROLL
  for (int i = 0; i < 4; ++i) word = at[i] / 4 < word ? at[i] / 4 : word;
  uint32_t selector = 0;
  uint32_t third = 0;  // of the result so far and the third word
  DATASETD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int byte = at[i] - 4 * word;
    selector |= static_cast<uint32_t>(byte < 8 ? byte : 0) << 4 * i;
    third |= static_cast<uint32_t>(byte < 8 ? i : byte - 4) << 4 * i;
  }
  uint32_t result = bytes[word];
  if (selector != 0x3210) {
    result = PermuteBytes(bytes[word], bytes[word + 1], selector);
  }
  if (third != 0x3210) {
    result = PermuteBytes(result, bytes[word + 2], third);
  }
  return result;
}

// Shifts the bytes down by `offset`, 0 to 15. The first kCount words are
// defined afterwards. Indices are constants, so that the words stay in
// registers.
template <int kCount, int kWords>
DATASETD_HOST_DEVICE inline void ShiftBytes(uint32_t (&words)[kWords],
                                            int offset) {
  DATASETD_UNROLL
  for (int i = 0; i + 2 < kWords && i < kCount + 2; ++i) {
    words[i] = offset & 8 ? words[i + 2] : words[i];
  }
  DATASETD_UNROLL
  for (int i = 0; i + 1 < kWords && i < kCount + 1; ++i) {
    words[i] = offset & 4 ? words[i + 1] : words[i];
  }
  DATASETD_UNROLL
  for (int i = 0; i < kCount; ++i) {
    words[i] = FunnelShift(words[i], words[i + 1], (offset & 3) * 8);
  }
}

// Loads 4 * kWords bytes from `from`, by aligned words: up to 3 bytes before
// and behind are read, too.
template <int kWords>
DATASETD_HOST_DEVICE inline void LoadBytes(const uint8_t* from,
                                           uint32_t (&bytes)[kWords]) {
  const int offset = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 3);
  const uint8_t* const aligned = from - offset;
  uint32_t word = LoadAs<uint32_t>(aligned, 0);
  DATASETD_UNROLL
  for (int i = 0; i < kWords; ++i) {
    uint32_t next = 0;
    if (i + 1 < kWords || offset > 0) {
      next = LoadAs<uint32_t>(aligned, i + 1);
    }
    bytes[i] = FunnelShift(word, next, 8 * offset);
    word = next;
  }
}

// Returns byte `i` of a word as a float, with no conversion, which is slow on a
// GPU: the mantissa's last bit of a float in [2^23, 2^24) is worth 1.
DATASETD_HOST_DEVICE inline float ByteOf(uint32_t word, int i) {
#if defined(__CUDA_ARCH__)
  float above;
  asm("prmt.b32 %0, %1, 0x4B000000, %2;"
      : "=f"(above)
      : "r"(word), "r"(0x7440 + i));
  return above - 8388608.0f;
#else
  return FloatFromBits(0x4B000000 | (word >> (8 * i) & 0xFF)) - 8388608.0f;
#endif
}

// Returns byte kOffset behind `from`, as LoadAs does.
template <int kOffset>
DATASETD_HOST_DEVICE inline uint32_t LoadByte(const uint8_t* from) {
#if defined(__CUDA_ARCH__)
  // __ldg converts its result twice, and adds the offset by itself.
  uint32_t byte;
  asm("ld.global.nc.u8 %0, [%1+%2];" : "=r"(byte) : "l"(from), "n"(kOffset));
  return byte;
#else
  return from[kOffset];
#endif
}

// Loads the three bytes from `from` on.
DATASETD_HOST_DEVICE inline void LoadRgb(const uint8_t* from, float (&to)[3]) {
  to[0] = static_cast<float>(LoadByte<0>(from));
  to[1] = static_cast<float>(LoadByte<1>(from));
  to[2] = static_cast<float>(LoadByte<2>(from));
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_BYTES_H_
