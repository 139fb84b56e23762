#include "server/readers/formats/part_reader.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/generated_data.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PartReaderTest : public ::testing::TestWithParam<const char*> {
 protected:
  PartReaderTest()
      : generated_(LoadGeneratedCase(GetParam())),
        files_(CopyToMemory(generated_)) {}

  AllSamples Read(const std::string& part, int64_t block) {
    v1::DatasetSpec spec = generated_.spec;
    if (!part.empty()) SetOption(spec, kPartOption, part);
    auto samples = ReadAll(spec, files_, block);
    EXPECT_THAT(samples, IsOk()) << part;
    return *samples;
  }
  // Samples of one size as texts.
  static std::vector<std::string> Rows(const AllSamples& samples, size_t f) {
    const auto bytes =
        static_cast<size_t>(samples.info.fields[f].sample_bytes());
    std::vector<std::string> rows;
    for (size_t at = 0; at < samples.fields[f].size(); at += bytes) {
      rows.push_back(samples.fields[f].substr(at, bytes));
    }
    return rows;
  }

  const GeneratedCase generated_;
  const MemoryFileSystem files_;
};

INSTANTIATE_TEST_SUITE_P(Formats, PartReaderTest,
                         ::testing::Values("npy_images", "raw_images",
                                           "raw_planes", "cifar10_train",
                                           "mnist_gzip", "image_folder",
                                           "webdataset_shards", "join"));

TEST_P(PartReaderTest, PartsTogetherAreTheWhole) {
  const AllSamples whole = Read("", 3);
  const int64_t total = whole.info.num_samples;
  const bool is_encoded = whole.info.is_encoded;
  for (const int64_t count :
       {int64_t{1}, int64_t{2}, int64_t{3}, std::min<int64_t>(total, 8)}) {
    std::vector<std::vector<std::string>> found(whole.info.fields.size());
    for (auto& rows : found) rows.resize(static_cast<size_t>(total));
    int64_t num_found = 0;
    for (int64_t i = 0; i < count; ++i) {
      const AllSamples part = Read(absl::StrCat(i, "/", count), 2);
      EXPECT_EQ(part.info.class_names, whole.info.class_names);
      num_found += part.info.num_samples;
      for (size_t f = 0; f < found.size(); ++f) {
        if (whole.info.fields[f].is_ragged) continue;
        const std::vector<std::string> rows = Rows(part, f);
        EXPECT_EQ(static_cast<int64_t>(rows.size()), part.info.num_samples);
        for (size_t k = 0; k < rows.size(); ++k) {
          const int64_t at = is_encoded
                                 ? i + static_cast<int64_t>(k) * count
                                 : i * total / count + static_cast<int64_t>(k);
          found[f][static_cast<size_t>(at)] = rows[k];
        }
      }
    }
    EXPECT_EQ(num_found, total);
    for (size_t f = 0; f < found.size(); ++f) {
      if (whole.info.fields[f].is_ragged) continue;
      EXPECT_EQ(found[f], Rows(whole, f));
    }
  }
}

TEST_P(PartReaderTest, SeveralPartsAreInTheOrderOfTheWhole) {
  const AllSamples whole = Read("", 3);
  const int64_t total = whole.info.num_samples;
  const AllSamples two = Read("0,2/3", 2);
  std::vector<size_t> rows;
  for (int64_t i = 0; i < total; ++i) {
    const bool is_left_out = whole.info.is_encoded
                                 ? i % 3 == 1
                                 : i >= total / 3 && i < 2 * total / 3;
    if (!is_left_out) rows.push_back(static_cast<size_t>(i));
  }
  ASSERT_EQ(two.info.num_samples, static_cast<int64_t>(rows.size()));
  for (size_t f = 0; f < whole.info.fields.size(); ++f) {
    if (whole.info.fields[f].is_ragged) continue;
    const std::vector<std::string> all = Rows(whole, f);
    const std::vector<std::string> found = Rows(two, f);
    for (size_t k = 0; k < rows.size(); ++k) EXPECT_EQ(found[k], all[rows[k]]);
  }
}

TEST_P(PartReaderTest, TheTextIsChecked) {
  const auto error_of = [&](const std::string& part) {
    v1::DatasetSpec spec = generated_.spec;
    SetOption(spec, kPartOption, part);
    const auto opened = OpenReader(spec, {files_});
    EXPECT_THAT(opened, StatusIs(absl::StatusCode::kInvalidArgument)) << part;
    return std::string(opened.status().message());
  };
  for (const char* part :
       {"", "1", "/", "1/", "/2", "2/2", "-1/2", "1,0/2", "0,0/2", "0/2/2",
        "a/2", "0/0", "0/-1", "0,/2", "0/1048577", "0/99999999999999999999"}) {
    EXPECT_THAT(error_of(part),
                AllOf(HasSubstr("option part is"), HasSubstr("expected I/N")))
        << part;
  }
  const bool is_encoded = Read("", 3).info.is_encoded;
  EXPECT_THAT(error_of(is_encoded ? "1048575/1048576" : "0/1048576"),
              HasSubstr("none is in it"));
}

}  // namespace
}  // namespace datasetd::testing
