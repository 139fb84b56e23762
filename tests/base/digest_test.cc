#include "base/digest.h"

#include <string>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

// Some of BLAKE3's own test vectors: bytes 0, 1, ... 250, 0, 1, ...
TEST(DigestTest, DigestsAreBlake3s) {
  EXPECT_EQ(HexDigest(""),
            "af1349b9f5f9a1a6a0404dea36dcc949"
            "9bcb25c9adc112b7cc9a93cae41f3262");
  std::string text;
  for (int i = 0; i < 1024; ++i) text.push_back(static_cast<char>(i % 251));
  EXPECT_EQ(HexDigest(text),
            "42214739f095a406f3fc83deb889744a"
            "c00df831c10daa55189b5d121c855af7");
}

}  // namespace
}  // namespace datasetd
