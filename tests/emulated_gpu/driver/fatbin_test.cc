// Images of the toolkit's own making: see fatbins in BUILD.

#include "tests/emulated_gpu/driver/fatbin.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::emulated_driver {
namespace {

using ::testing::HasSubstr;

// Reads an image for sm_80 and compute_90.
std::string Image(const std::string& compression) {
  const std::string path =
      std::string(getenv("FATBINS")) + "/" + compression + ".fatbin";
  std::stringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  EXPECT_GT(bytes.str().size(), 0u) << path;
  return bytes.str();
}

class FatbinTest : public ::testing::TestWithParam<const char*> {
 protected:
  CUresult Select(int capability, int driver_version = 99990) {
    const std::string image = Image(GetParam());
    return SelectPtx(image.data(), capability, driver_version, &ptx_, &version_,
                     &why_);
  }

  std::string ptx_;
  std::string why_;
  int version_ = 0;
};

TEST_P(FatbinTest, EntriesAreFound) {
  const std::string image = Image(GetParam());
  std::vector<FatbinEntry> entries;
  ASSERT_TRUE(ReadFatbin(image.data(), &entries, &why_)) << why_;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_FALSE(entries[0].is_ptx);
  EXPECT_EQ(entries[0].architecture, 80);
  EXPECT_TRUE(entries[1].is_ptx);
  EXPECT_EQ(entries[1].architecture, 90);
  EXPECT_THAT(entries[1].text, HasSubstr(".visible .entry AddKernel("));
}

// CUDA Programming Guide, "PTX Compatibility": on this and later devices.
TEST_P(FatbinTest, PtxRunsOnLaterDevices) {
  EXPECT_EQ(Select(90), CUDA_SUCCESS);
  EXPECT_EQ(Select(120), CUDA_SUCCESS);
  EXPECT_THAT(ptx_, HasSubstr(".target sm_90"));
  EXPECT_GT(version_, 70);
  EXPECT_EQ(Select(75), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(why_, "the image has sm_80, compute_90, the device is sm_75");
}

// Where machine code would run, the PTX of the same source does.
TEST_P(FatbinTest, PtxStandsInForMachineCode) {
  EXPECT_EQ(Select(80), CUDA_SUCCESS);
  EXPECT_EQ(Select(86), CUDA_SUCCESS);
}

// CUDA Compatibility: of the same major number, any will do.
TEST_P(FatbinTest, MachineCodeNeedsADriverOfItsMajorVersion) {
  const int needed = CUDA_VERSION / 1000 * 1000;
  EXPECT_EQ(Select(80, std::max(needed, 12040)), CUDA_SUCCESS);
  if (needed < 13000) GTEST_SKIP() << "the ABI of CUDA 12 is that of 11";
  EXPECT_EQ(Select(80, 12090), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why_, "machine code of ABI 8 with a driver of CUDA 12.9");
}

INSTANTIATE_TEST_SUITE_P(Compressions, FatbinTest,
                         ::testing::Values("none", "size", "speed", "default"));

TEST(FatbinContainerTest, PtxNeedsADriverOfItsVersion) {
  std::string ptx;
  std::string why;
  int version = 0;
  const std::string image = Image("none");
  EXPECT_EQ(SelectPtx(image.data(), 90, 11000, &ptx, &version, &why),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_THAT(why, HasSubstr("with a driver of CUDA 11.0"));
}

TEST(FatbinContainerTest, ZstandardNeedsADriverOfCuda12Point4) {
  std::string ptx;
  std::string why;
  int version = 0;
  const std::string image = Image("size");
  std::vector<FatbinEntry> entries;
  ASSERT_TRUE(ReadFatbin(image.data(), &entries, &why)) << why;
  if (!entries[0].is_zstd) GTEST_SKIP() << "this nvcc has no Zstandard";
  EXPECT_EQ(SelectPtx(image.data(), 90, 12030, &ptx, &version, &why),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why, "Zstandard with a driver of CUDA 12.3");
  EXPECT_NE(SelectPtx(image.data(), 90, 12040, &ptx, &version, &why),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(FatbinContainerTest, BrokenContainers) {
  std::string ptx;
  std::string why;
  int version = 0;
  std::string image = Image("none");
  // The second header would lie beyond the end.
  image[16 + 8] = '\xff';
  image[16 + 14] = '\x7f';
  EXPECT_EQ(SelectPtx(image.data(), 90, 13000, &ptx, &version, &why),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why, "a broken container");
  image[0] = 'x';
  EXPECT_EQ(SelectPtx(image.data(), 90, 13000, &ptx, &version, &why),
            CUDA_ERROR_INVALID_IMAGE);
}

}  // namespace
}  // namespace datasetd::emulated_driver
