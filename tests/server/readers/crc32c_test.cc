#include "server/readers/archives/crc32c.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

// Bit by bit, as the definition has it.
uint32_t Reference(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) {
      crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
  }
  return ~crc;
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, HasTheValuesOfTheStandard) {
  std::vector<uint8_t> bytes(32, 0);
  EXPECT_EQ(Crc32c(bytes), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(Crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(Crc32c(bytes), 0x46dd794eu);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(31 - i);
  EXPECT_EQ(Crc32c(bytes), 0x113fdb5cu);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32cTest, EveryLengthIsRight) {
  std::mt19937 random(5);
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(Crc32c(bytes), Reference(bytes)) << i;
    bytes.push_back(static_cast<uint8_t>(random()));
  }
}

}  // namespace
}  // namespace datasetd
