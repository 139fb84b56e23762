#include "tests/server/readers/reader_conformance.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/allocation_meter.h"
#include "tests/server/readers/read_all.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/long_form.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kWhole = int64_t{1} << 40;
constexpr int64_t kMaxReaderBytes = 2 << 20;
// Files that take long to read a thousand times.
constexpr size_t kManyBytes = 256 << 10;
// Memory that all samples may take if the header of one is damaged, within
// max_pixels of the case's options.
constexpr int64_t kMaxEncodedBytes = 16 << 20;

// True for the errors that a reader may report of a damaged file.
bool IsDamage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

// Text beside the samples may be cut without a reader being able to tell.
bool IsText(const std::string& path) {
  return absl::EndsWith(path, ".txt") || absl::EndsWith(path, ".csv");
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST_P(ReaderConformanceTest, DeclaresAndReadsWhatWasWritten) {
  auto files = CreateRootedFileSystem({GeneratedDirectory()});
  ASSERT_TRUE(files.ok()) << files.status();
  auto all = ReadAll(generated_.spec, **files, kWhole);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->info.num_samples, generated_.num_samples);
  EXPECT_EQ(all->info.class_names, generated_.class_names);
  ASSERT_EQ(all->info.fields.size(), generated_.fields.size());
  for (size_t i = 0; i < all->fields.size(); ++i) {
    EXPECT_TRUE(all->info.fields[i] == generated_.fields[i])
        << generated_.fields[i].name;
    EXPECT_TRUE(all->fields[i] == generated_.samples[i])
        << generated_.fields[i].name << " differs";
  }
}

TEST_P(ReaderConformanceTest, BlocksOfAnySizeGiveTheSameBytes) {
  for (const int64_t block : {1, 2, 3, 7, 257}) {
    auto all = ReadAll(generated_.spec, memory_, block);
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_TRUE(all->fields == generated_.samples) << "block " << block;
  }
}

TEST_P(ReaderConformanceTest, ThreadsReadAnySamplesAtOnce) {
  const auto reader = OpenReader(generated_.spec, {memory_});
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::vector<int64_t> order(static_cast<size_t>(generated_.num_samples));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(seed));
      order.resize(std::min<size_t>(order.size(), 50));
      for (const int64_t index : order) {
        const auto sample = ReadSample(**reader, index);
        ASSERT_TRUE(sample.ok()) << sample.status();
        for (size_t f = 0; f < sample->size(); ++f) {
          const FieldSpec& field = generated_.fields[f];
          if (field.is_ragged) continue;
          const auto size = static_cast<size_t>(field.sample_bytes());
          EXPECT_TRUE((*sample)[f] ==
                      generated_.samples[f].substr(
                          static_cast<size_t>(index) * size, size))
              << field.name << " of sample " << index;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ReaderConformanceTest, ListsItsFilesWithSizeAndTime) {
  auto files = CreateRootedFileSystem({GeneratedDirectory()});
  ASSERT_TRUE(files.ok()) << files.status();
  auto reader = OpenReader(generated_.spec, {**files});
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> paths;
  for (const FileInfo& info : (*reader)->info().files) {
    paths.push_back(info.path);
    EXPECT_EQ(static_cast<uintmax_t>(info.size_bytes),
              std::filesystem::file_size(info.path));
    EXPECT_NE(info.mtime_nanoseconds, 0);
  }
  EXPECT_EQ(paths, generated_.files);
}

TEST_P(ReaderConformanceTest, RefusesToReadMoreThanThereIs) {
  auto reader = OpenReader(generated_.spec, {memory_});
  ASSERT_TRUE(reader.ok()) << reader.status();
  if ((*reader)->info().is_encoded) return;
  std::vector<std::string> storage;
  std::vector<absl::Span<uint8_t>> buffers;
  const int64_t count = generated_.num_samples + 1;
  for (const FieldSpec& field : generated_.fields) {
    storage.emplace_back(static_cast<size_t>(count * field.sample_bytes()),
                         '\0');
  }
  for (std::string& bytes : storage) {
    buffers.emplace_back(reinterpret_cast<uint8_t*>(bytes.data()),
                         bytes.size());
  }
  EXPECT_EQ((*reader)->Read(0, count, buffers).code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ((*reader)->Read(0, 1, buffers).code(), absl::StatusCode::kInternal);
}

TEST_P(ReaderConformanceTest, TruncationAtEvery64thIsAnErrorThatNamesTheFile) {
  for (const std::string& path : generated_.files) {
    const std::string whole = memory_.contents().at(path);
    for (size_t part = 0; part < 64; ++part) {
      const size_t size = whole.size() * part / 64;
      memory_.Write(path, whole.substr(0, size));
      const absl::Status status =
          ReadAll(generated_.spec, memory_, kWhole).status();
      if (IsText(path)) continue;
      EXPECT_TRUE(IsDamage(status)) << path << " of " << size << ": " << status;
      EXPECT_THAT(Message(status), HasSubstr(path));
    }
    memory_.Write(path, whole);
  }
}

TEST_P(ReaderConformanceTest, OneByteTooManyIsAnErrorThatNamesTheFile) {
  for (const std::string& path : generated_.files) {
    if (IsText(path)) continue;
    const std::string whole = memory_.contents().at(path);
    memory_.Write(path, absl::StrCat(whole, "x"));
    const auto all = ReadAll(generated_.spec, memory_, kWhole);
    if (all.ok() && all->info.is_encoded) {
      // Codecs stop where the image ends.
      EXPECT_TRUE(all->fields == generated_.samples) << path;
    } else {
      EXPECT_TRUE(IsDamage(all.status())) << path << ": " << all.status();
      EXPECT_THAT(Message(all.status()), HasSubstr(path));
    }
    memory_.Write(path, whole);
  }
}

TEST_P(ReaderConformanceTest, FlippedBitsGiveSamplesOrAnErrorWithinBounds) {
  std::mt19937_64 random(7);
  size_t total_bytes = 0;
  for (const std::string& path : generated_.files) {
    total_bytes += memory_.contents().at(path).size();
  }
  int num_rounds = testing::IsFull() ? 1000 : 100;
  if (total_bytes >= kManyBytes) num_rounds = testing::IsFull() ? 100 : 20;
  for (int i = 0; i < num_rounds; ++i) {
    const std::string& path =
        generated_.files[random() % generated_.files.size()];
    const std::string whole = memory_.contents().at(path);
    std::string damaged = whole;
    // Every second one in the header.
    const size_t range =
        i % 2 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 128);
    damaged[random() % range] ^= static_cast<char>(1 << random() % 8);
    memory_.Write(path, std::move(damaged));
    int64_t output_bytes = 0;
    {
      const AllocationMeter meter;
      const auto reader = OpenReader(generated_.spec, {memory_});
      EXPECT_LE(meter.peak_bytes(), kMaxReaderBytes) << path;
      if (reader.ok() && (*reader)->info().is_encoded) {
        output_bytes = kMaxEncodedBytes;
      } else if (reader.ok()) {
        for (const FieldSpec& field : (*reader)->info().fields) {
          output_bytes += (*reader)->info().num_samples * field.sample_bytes();
        }
      }
    }
    const AllocationMeter meter;
    const absl::Status status =
        ReadAll(generated_.spec, memory_, kWhole).status();
    // A damaged list of files may name one that does not exist.
    EXPECT_TRUE(status.ok() || IsDamage(status) || absl::IsNotFound(status))
        << status;
    EXPECT_LE(meter.peak_bytes(), output_bytes + kMaxReaderBytes) << path;
    memory_.Write(path, whole);
  }
}

TEST_P(ReaderConformanceTest, EmptyFilesAreInvalid) {
  for (const std::string& path : generated_.files) {
    if (IsText(path)) continue;
    const std::string whole = memory_.contents().at(path);
    memory_.Write(path, "");
    const auto reader = OpenReader(generated_.spec, {memory_});
    // An encoded sample is looked at when it is decoded.
    EXPECT_THAT(reader.ok() && (*reader)->info().is_encoded
                    ? ReadAll(generated_.spec, memory_, kWhole).status()
                    : reader.status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path), HasSubstr("empty"))));
    memory_.Write(path, whole);
  }
}

TEST_P(ReaderConformanceTest, AFailingDiskIsPassedOnWhereverItFails) {
  int64_t failures = 0;
  for (int64_t reads = 0;; ++reads) {
    MemoryFileSystem files = CopyToMemory(generated_);
    files.FailReadsAfter(reads);
    const absl::Status status =
        ReadAll(generated_.spec, files, kWhole).status();
    if (!files.has_failed()) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    ++failures;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("injected fault")));
  }
  EXPECT_GE(failures, 1);
}

TEST_P(ReaderConformanceTest, ADirectoryInPlaceOfAFileIsNotRead) {
  for (const std::string& path : generated_.files) {
    MemoryFileSystem files;
    for (const auto& [other, content] : memory_.contents()) {
      files.Write(other == path ? absl::StrCat(path, "/x") : other, content);
    }
    const auto reader = OpenReader(generated_.spec, {files});
    // The dataset lacks the field or the sample that is not there; or that is a
    // bad sample.
    if (reader.ok() && (*reader)->info().is_encoded) {
      const auto all = ReadAll(generated_.spec, files, kWhole);
      if (all.ok()) {
        EXPECT_LT(all->info.num_samples, generated_.num_samples);
      } else {
        EXPECT_EQ(all.status().code(), absl::StatusCode::kInvalidArgument)
            << all.status();
      }
    } else if (reader.ok()) {
      EXPECT_EQ(generated_.spec.format(), "npy");
      EXPECT_LT((*reader)->info().fields.size(), generated_.fields.size());
    } else {
      EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument)
          << reader.status();
    }
  }
}

TEST_P(ReaderConformanceTest, AFileInPlaceOfADirectoryOrTheReverseIsInvalid) {
  v1::DatasetSpec spec = generated_.spec;
  const bool is_file = spec.path() != generated_.directory;
  spec.set_path(is_file ? generated_.directory : generated_.files.front());
  EXPECT_THAT(OpenReader(spec, {memory_}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(is_file ? "a directory, expected"
                                         : "expected the directory")));
}

TEST_P(ReaderConformanceTest, AMissingDirectoryIsNotFound) {
  v1::DatasetSpec spec = generated_.spec;
  spec.set_path("/none");
  EXPECT_EQ(OpenReader(spec, {memory_}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(ReaderConformanceTest, LinksAndDotDotOutOfTheRootAreDenied) {
  const std::string base =
      absl::StrCat(::testing::TempDir(), "/links_", GetParam());
  const std::string root = absl::StrCat(base, "/root");
  std::filesystem::remove_all(base);
  std::filesystem::create_directories(root);
  std::filesystem::copy(generated_.directory, absl::StrCat(root, "/source"),
                        std::filesystem::copy_options::recursive);
  const std::string below =
      generated_.spec.path().substr(generated_.directory.size());
  std::filesystem::create_directories(absl::StrCat(base, "/outside"));
  std::filesystem::create_symlink("../outside", absl::StrCat(root, "/link"));
  auto files = CreateRootedFileSystem({root});
  ASSERT_TRUE(files.ok()) << files.status();
  v1::DatasetSpec spec = generated_.spec;
  for (const char* path : {"/link", "/../outside", "/source/../../outside"}) {
    spec.set_path(absl::StrCat(root, path, below));
    EXPECT_EQ(OpenReader(spec, {**files}).status().code(),
              absl::StatusCode::kPermissionDenied)
        << path;
  }
  // One file of the source is a link to the same bytes outside.
  spec.set_path(absl::StrCat(root, "/source", below));
  for (const std::string& original : generated_.files) {
    const std::string relative =
        original.substr(generated_.directory.size() + 1);
    const std::filesystem::path path = absl::StrCat(root, "/source/", relative);
    std::filesystem::remove(path);
    std::filesystem::create_symlink(original, path);
    EXPECT_THAT(ReadAll(spec, **files, kWhole),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         AllOf(HasSubstr(path.filename().string()),
                               HasSubstr("as seen by the daemon"))));
    std::filesystem::remove(path);
    std::filesystem::copy(original, path);
  }
  EXPECT_TRUE(OpenReader(spec, {**files}).ok());
}

TEST_P(ReaderConformanceTest, UnknownSplitAndOptionAreNamed) {
  v1::DatasetSpec spec = generated_.spec;
  spec.set_split("validation");
  absl::Status status = OpenReader(spec, {memory_}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("'validation'")));
  spec = generated_.spec;
  SetOption(spec, "colour", "blue");
  status = OpenReader(spec, {memory_}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("'colour'")));
}

}  // namespace
}  // namespace datasetd::testing
