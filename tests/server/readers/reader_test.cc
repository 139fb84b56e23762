#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReaderTest, FormatsAreSorted) {
  EXPECT_THAT(
      ReaderFormats(),
      ElementsAre("cifar10", "cifar100", "cifar100_python", "cifar10_python",
                  "csv_pixels", "hdf5", "image_csv", "image_folder", "join",
                  "mnist", "npy", "npz", "raw", "tfrecord", "webdataset"));
}

TEST(ReaderTest, AnUnknownFormatIsAnErrorThatNamesThoseThereAre) {
  const testing::MemoryFileSystem files;
  for (const char* format : {"", "cifar", "CIFAR10", "zip"}) {
    const absl::Status status =
        OpenReader({format, "/x", "", {}}, files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("join, mnist, npy, npz, raw, tfrecord, webdataset"));
  }
}

}  // namespace
}  // namespace datasetd
