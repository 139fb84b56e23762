#include "server/readers/reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReaderTest, FormatsAreSorted) {
  EXPECT_THAT(ReaderFormats(),
              ElementsAre("cifar10", "cifar100", "image_csv", "image_folder",
                          "mnist", "npy"));
}

TEST(ReaderTest, AnUnknownFormatIsAnErrorThatNamesThoseThereAre) {
  const testing::MemoryFileSystem files;
  for (const char* format : {"", "cifar", "CIFAR10", "zip"}) {
    const absl::Status status =
        OpenReader({format, "/x", "", {}}, files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cifar10, cifar100, image_csv, image_folder, mnist, npy"));
  }
}

}  // namespace
}  // namespace datasetd
