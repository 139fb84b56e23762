#include "server/readers/interleave_planes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(InterleavePlanesTest, EveryByteGoesToItsPixelAndNoOtherIsWritten) {
  constexpr uint8_t kUntouched = 0xa5;
  for (const size_t plane_bytes : {0, 1, 15, 16, 17, 31, 32, 33, 47, 1024}) {
    for (const size_t offset : {0, 1, 13}) {
      std::vector<uint8_t> planes(3 * plane_bytes + offset);
      for (size_t i = 0; i < planes.size(); ++i) {
        planes[i] = static_cast<uint8_t>(7 * i + i / 256);
      }
      std::vector<uint8_t> pixels(offset + 3 * plane_bytes + 16, kUntouched);
      InterleavePlanes(planes.data() + offset, plane_bytes,
                       pixels.data() + offset);
      for (size_t i = 0; i < pixels.size(); ++i) {
        if (i < offset || i >= offset + 3 * plane_bytes) {
          ASSERT_EQ(pixels[i], kUntouched) << plane_bytes << " " << i;
          continue;
        }
        const size_t pixel = (i - offset) / 3;
        const size_t plane = (i - offset) % 3;
        ASSERT_EQ(pixels[i], planes[offset + plane * plane_bytes + pixel])
            << plane_bytes << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace datasetd
