#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Hdf5, ReaderConformanceTest,
                         ::testing::Values("hdf5_chunked"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Hdf5ReaderTest, EveryDtypeIsReadOrWidened) {
  const GeneratedCase generated = LoadGeneratedCase("hdf5_every_dtype");
  const auto all = ReadAll(generated.spec, CopyToMemory(generated), 4);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->fields.size(), generated.fields.size());
  for (size_t f = 0; f < all->fields.size(); ++f) {
    EXPECT_TRUE(all->info.fields[f] == generated.fields[f])
        << generated.fields[f].name;
    EXPECT_TRUE(all->fields[f] == generated.samples[f])
        << generated.fields[f].name;
  }
}

std::string ErrorOf(
    const std::string& fields,
    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const GeneratedCase generated = LoadGeneratedCase("hdf5_evil");
  SourceSpec spec = generated.spec;
  spec.options = {};
  if (!fields.empty()) spec.options["fields"] = fields;
  const absl::Status status =
      ReadAll(spec, CopyToMemory(generated), 4).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.h5"));
  return std::string(status.message());
}

TEST(Hdf5ReaderTest, OtherFilesAreNotRead) {
  EXPECT_THAT(ErrorOf("x:linked"), HasSubstr("'linked' is no dataset of this"));
  EXPECT_THAT(ErrorOf("x:external"), HasSubstr("data in other files"));
  EXPECT_THAT(ErrorOf("x:virtual"), HasSubstr("data in other files"));
}

TEST(Hdf5ReaderTest, WhatCannotBeAFieldIsNamed) {
  EXPECT_THAT(ErrorOf("x:nothing"), HasSubstr("'nothing' is not there"));
  EXPECT_THAT(ErrorOf("x:no/where"), HasSubstr("'no/where' is not there"));
  EXPECT_THAT(ErrorOf("x:lost"), HasSubstr("'lost'"));
  EXPECT_THAT(ErrorOf("text"), HasSubstr("'text' does not hold numbers"));
  EXPECT_THAT(ErrorOf("scalar"), HasSubstr("0 dimensions"));
  EXPECT_THAT(ErrorOf("good,short"), AllOf(HasSubstr("'short' holds 3 samples"),
                                           HasSubstr("'good' 9")));
  EXPECT_THAT(ErrorOf("huge", absl::StatusCode::kDataLoss),
              HasSubstr("more than a file of"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("data in other files"));
}

TEST(Hdf5ReaderTest, WithoutTheWorkerTheErrorSaysWhatToDo) {
  const std::string worker = getenv("DATASETD_HDF5_WORKER");
  setenv("DATASETD_HDF5_WORKER", "/nowhere/datasetd-hdf5", 1);
  EXPECT_THAT(
      [] {
        const GeneratedCase generated = LoadGeneratedCase("hdf5_evil");
        const absl::Status status =
            OpenReader(generated.spec, CopyToMemory(generated)).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        return std::string(status.message());
      }(),
      AllOf(HasSubstr("/nowhere/datasetd-hdf5"), HasSubstr("save the arrays")));
  // A worker that ends at once.
  setenv("DATASETD_HDF5_WORKER", "/bin/true", 1);
  EXPECT_THAT(ErrorOf("good", absl::StatusCode::kDataLoss),
              HasSubstr("gave up on the file"));
  setenv("DATASETD_HDF5_WORKER", worker.c_str(), 1);
}

}  // namespace
}  // namespace datasetd::testing
