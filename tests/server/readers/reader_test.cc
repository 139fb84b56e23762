#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReaderTest, FormatsAreSorted) {
  EXPECT_THAT(
      ReaderFormats(),
      ElementsAre("cifar10", "cifar100", "image_csv", "image_folder", "join",
                  "mnist", "npy", "raw", "tokens", "webdataset"));
}

TEST(ReaderTest, AnUnknownFormatIsAnErrorThatNamesThoseThereAre) {
  const testing::MemoryFileSystem files;
  for (const char* format : {"", "cifar", "CIFAR10", "zip"}) {
    EXPECT_THAT(OpenReader(testing::SpecOf(format, "/x"), {files}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("mnist, npy, raw, tokens, webdataset")));
  }
}

TEST(ReaderTest, ClassNamesAreForFormatsThatDeriveClasses) {
  const testing::MemoryFileSystem files;
  for (const std::string format :
       {"cifar10", "join", "mnist", "npy", "raw", "tokens", "webdataset"}) {
    EXPECT_THAT(OpenReader(testing::With(testing::SpecOf(format, "/x"),
                                         "class_names: 'a'"),
                           {files}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("class_names: format ", format,
                                                " derives no classes"))));
  }
}

TEST(ReaderTest, AFormatOfThePythonPackageIsRefusedWithTheWayToReadIt) {
  const testing::MemoryFileSystem files;
  std::vector<std::pair<std::string, std::string>> formats = {
      {"cifar10_python", "cifar_python"}, {"cifar100_python", "cifar_python"}};
  for (const char* const name :
       {"arrow", "cifar_python", "csv", "csv_pixels", "hdf5", "lmdb", "n5",
        "npz", "parquet", "recordio", "safetensors", "tfrecord", "torch_file",
        "zarr"}) {
    formats.emplace_back(name, name);
  }
  for (const auto& [format, function] : formats) {
    const absl::Status status =
        OpenReader(testing::SpecOf(format, "/x"), {files}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              absl::StrCat("format \"", format,
                           "\" is read by the job: python -m datasetd load "
                           "NAME ",
                           format, " PATH, or datasetd.sources.", function));
  }
}

}  // namespace
}  // namespace datasetd
