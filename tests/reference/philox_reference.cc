#include "tests/reference/philox_reference.h"

#include <array>
#include <cstdint>

namespace datasetd::reference {
namespace {

uint32_t MulHi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * uint64_t{b} / 4294967296u);
}

uint32_t MulLo(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * uint64_t{b} % 4294967296u);
}

}  // namespace

// The paper's round on two Feistel halves (L0, R0), (L1, R1):
//   L' = mullo(R, M);  R' = mulhi(R, M) xor k xor L
// and then a swap of the halves, written here for N = 4.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                               std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // the golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  std::array<uint32_t, 4> x = counter;
  for (uint32_t round = 0; round < 10; ++round) {
    const uint32_t key0 = key[0] + round * kWeyl0;
    const uint32_t key1 = key[1] + round * kWeyl1;
    x = {MulHi(kMultiplier1, x[2]) ^ x[1] ^ key0, MulLo(kMultiplier1, x[2]),
         MulHi(kMultiplier0, x[0]) ^ x[3] ^ key1, MulLo(kMultiplier0, x[0])};
  }
  return x;
}

}  // namespace datasetd::reference
