// Images of the toolkit's own making: see fatbins in BUILD.

#include "tests/emulated_gpu/driver/fatbin.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::emulated_driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::stringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  EXPECT_GT(bytes.str().size(), 0u) << path;
  return bytes.str();
}

// Reads an image for sm_80 and compute_90.
std::string Image(const std::string& compression) {
  return ReadFile(std::string(getenv("FATBINS")) + "/" + compression +
                  ".fatbin");
}

class FatbinTest : public ::testing::TestWithParam<const char*> {
 protected:
  CUresult Select(int capability, int driver_version = 99990) {
    const std::string image = Image(GetParam());
    return SelectPtx(image.data(), capability, driver_version, &selection_,
                     &why_);
  }

  Selection selection_;
  std::string why_;
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
  EXPECT_EQ(selection_.image, "compute_90");
  EXPECT_THAT(selection_.ptx, HasSubstr(".target sm_90"));
  EXPECT_GT(selection_.version, 70);
  EXPECT_EQ(Select(75), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(why_, "the image has sm_80, compute_90, the device is sm_75");
}

// Where machine code would run, the PTX of the same source does.
TEST_P(FatbinTest, PtxStandsInForMachineCode) {
  EXPECT_EQ(Select(80), CUDA_SUCCESS);
  EXPECT_EQ(Select(86), CUDA_SUCCESS);
  EXPECT_EQ(selection_.image, "sm_80");
  EXPECT_THAT(selection_.ptx, HasSubstr(".target sm_90"));
}

// ABI 8 came with CUDA 12.8; CUDA 13 writes nothing else.
TEST_P(FatbinTest, MachineCodeNeedsADriverThatKnowsItsAbi) {
  const int needed = CUDA_VERSION < 13000 ? 12040 : 12080;
  EXPECT_EQ(Select(80, needed), CUDA_SUCCESS) << why_;
  if (needed < 12080) GTEST_SKIP() << "the ABI of CUDA 12 is that of 11";
  EXPECT_EQ(Select(80, 12060), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why_, "machine code of ABI 8 with a driver of CUDA 12.6");
}

INSTANTIATE_TEST_SUITE_P(Compressions, FatbinTest,
                         ::testing::Values("none", "size", "speed", "default"));

TEST(FatbinContainerTest, PtxNeedsADriverOfItsVersion) {
  Selection selection;
  std::string why;
  const std::string image = Image("none");
  EXPECT_EQ(SelectPtx(image.data(), 90, 11000, &selection, &why),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_THAT(why, HasSubstr("with a driver of CUDA 11.0"));
}

TEST(FatbinContainerTest, ZstandardNeedsADriverOfCuda12Point4) {
  Selection selection;
  std::string why;
  const std::string image = Image("size");
  std::vector<FatbinEntry> entries;
  ASSERT_TRUE(ReadFatbin(image.data(), &entries, &why)) << why;
  if (!entries[0].is_zstd) GTEST_SKIP() << "this nvcc has no Zstandard";
  EXPECT_EQ(SelectPtx(image.data(), 90, 12030, &selection, &why),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why, "Zstandard with a driver of CUDA 12.3");
  EXPECT_NE(SelectPtx(image.data(), 90, 12040, &selection, &why),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(FatbinContainerTest, BrokenContainers) {
  Selection selection;
  std::string why;
  std::string image = Image("none");
  // The second header would lie beyond the end.
  image[16 + 8] = '\xff';
  image[16 + 14] = '\x7f';
  EXPECT_EQ(SelectPtx(image.data(), 90, 13000, &selection, &why),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(why, "a broken container");
  image[0] = 'x';
  EXPECT_EQ(SelectPtx(image.data(), 90, 13000, &selection, &why),
            CUDA_ERROR_INVALID_IMAGE);
}

// The kernels as they are shipped.
class KernelsFatbinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (atoi(getenv("KERNELS_NEED_CUDA")) != 12) {
      GTEST_SKIP() << "without a ptxas of CUDA 12 the kernels are of 13";
    }
    image_ = ReadFile(getenv("KERNELS"));
    ASSERT_TRUE(ReadFatbin(image_.data(), &entries_, &why_)) << why_;
  }

  std::string image_;
  std::vector<FatbinEntry> entries_;
  std::string why_;
};

TEST_F(KernelsFatbinTest, DriversOfCuda12Point0CanReadIt) {
  std::vector<int> architectures;
  for (const FatbinEntry& entry : entries_) {
    EXPECT_FALSE(entry.is_zstd);
    if (entry.is_ptx) {
      EXPECT_EQ(entry.architecture, 70);
      EXPECT_THAT(entry.text, HasSubstr("\n.version 8.0\n.target sm_70\n"));
    } else {
      architectures.push_back(entry.architecture);
      EXPECT_EQ(entry.abi, entry.architecture < 100 ? 7 : 8)
          << entry.architecture;
    }
  }
  EXPECT_THAT(architectures, ElementsAre(70, 75, 80, 90, 100, 120));
}

TEST_F(KernelsFatbinTest, EachDriverTakesTheRightMachineCode) {
  const std::map<int, std::string> taken = {
      {70, "sm_70"},
      {72, "sm_70"},
      {75, "sm_75"},
      {80, "sm_80"},
      {86, "sm_80"},
      {87, "sm_80"},
      {89, "sm_80"},
      {90, "sm_90"},
      {100, "sm_100"},
      {103, "sm_100"},
      {120, "sm_120"},
      {121, "sm_120"},
      // Neither Thor nor what comes later has code of its own.
      {110, "compute_70"}};
  for (const int driver : {12000, 12020, 12040, 12080, 13000}) {
    for (const auto& [capability, name] : taken) {
      Selection selection;
      const CUresult result =
          SelectPtx(image_.data(), capability, driver, &selection, &why_);
      if (name.size() == 6 && driver < 12080) {
        EXPECT_EQ(result, CUDA_ERROR_INVALID_IMAGE) << capability;
        EXPECT_THAT(why_, HasSubstr("machine code of ABI 8 with a driver of"));
      } else {
        EXPECT_EQ(result, CUDA_SUCCESS) << driver << " " << why_;
        EXPECT_EQ(selection.image, name) << driver;
      }
    }
    Selection selection;
    EXPECT_EQ(SelectPtx(image_.data(), 61, driver, &selection, &why_),
              CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
}

}  // namespace
}  // namespace datasetd::emulated_driver
