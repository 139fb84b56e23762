#include "server/readers/archives/crc32c.h"

#include <array>
#include <cstddef>

namespace datasetd {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr size_t kSlices = 8;

using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// tables[k][b]: CRC of byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < kSlices; ++k) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32c(absl::Span<const uint8_t> bytes) {
  uint32_t crc = 0xffffffff;
  while (bytes.size() >= kSlices) {
    uint32_t next = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t byte = bytes[i] ^ (i < 4 ? crc >> (8 * i) & 0xff : 0);
      next ^= kTables[kSlices - 1 - i][byte];
    }
    crc = next;
    bytes.remove_prefix(kSlices);
  }
  for (const uint8_t byte : bytes) {
    crc = crc >> 8 ^ kTables[0][(crc ^ byte) & 0xff];
  }
  return ~crc;
}

}  // namespace datasetd
