#include "server/load/source_scan.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryFileSystem;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

absl::Status Keep(const FileInfo&) { return absl::OkStatus(); }

using Opened = absl::StatusOr<std::unique_ptr<SampleSource>>;

class SourceScanTest : public ::testing::Test {
 protected:
  SourceScanTest() {
    files_.Write("/d/a", "abc");
    files_.Write("/d/b", "de");
  }
  Opened Source() {
    return std::make_unique<FakeSource>(10, 1, "/d/a", 7, &gate_);
  }
  int64_t num_entries() const { return scan_->num_entries.load(); }

  SourceGate gate_;
  MemoryFileSystem files_;
  const std::shared_ptr<SourceScan> scan_ = std::make_shared<SourceScan>();
};

TEST_F(SourceScanTest, EveryLookIsCountedAndGoesThrough) {
  const auto open = [this](const FileSystem& files) -> Opened {
    EXPECT_EQ(files.List("/d", Keep)->size(), 2);
    EXPECT_EQ(num_entries(), 2);
    EXPECT_EQ(files.Stat("/d/b")->size_bytes, 2);
    EXPECT_THAT(files.Stat("/d/c"), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(num_entries(), 4);
    const auto file = files.Open("/d/a");
    EXPECT_EQ((*file)->info().size_bytes, 3);
    std::array<uint8_t, 3> bytes = {};
    EXPECT_THAT(ReadExactly(**file, 0, absl::MakeSpan(bytes)), IsOk());
    EXPECT_EQ(bytes[2], 'c');
    EXPECT_EQ(num_entries(), 6);
    return Source();
  };
  const auto source = OpenScanned(files_, scan_, open);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ((*source)->info().num_samples, 10);
  std::vector<uint8_t> pixels(10);
  const absl::Span<uint8_t> field = absl::MakeSpan(pixels);
  EXPECT_THAT((*source)->Read(0, 10, absl::MakeConstSpan(&field, 1)), IsOk());
  EXPECT_EQ(pixels[9], 7);
}

class SourceOfFiles final : public SampleSource {
 public:
  explicit SourceOfFiles(std::vector<FileInfo> files) {
    info_.files = std::move(files);
  }
  const SourceInfo& info() const override { return info_; }

 private:
  SourceInfo info_;
};

TEST_F(SourceScanTest, AFileThatWasChangedIsNoticedAfterwards) {
  const auto open = [](const FileSystem& files) -> Opened {
    FileInfo checked = *files.Stat("/d/b");
    checked.is_checked_when_read = true;
    return std::make_unique<SourceOfFiles>(
        std::vector<FileInfo>{*files.Stat("/d/a"), std::move(checked)});
  };
  const auto source = OpenScanned(files_, scan_, open);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->CheckUnchanged(), IsOk());
  files_.Write("/d/b", "ed");
  EXPECT_THAT((*source)->CheckUnchanged(), IsOk());
  // The new contents have the old size.
  files_.Write("/d/a", "cba");
  EXPECT_THAT((*source)->CheckUnchanged(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/d/a: was changed after the load began")));
}

TEST_F(SourceScanTest, OnceCancelledNothingIsLookedAt) {
  for (int at = 0; at < 4; ++at) {
    scan_->is_cancelled = false;
    int step = 0;
    const auto cancelled = StatusIs(absl::StatusCode::kCancelled,
                                    HasSubstr("the load was cancelled"));
    const auto open = [&](const FileSystem& files) -> Opened {
      const auto file = files.Open("/d/a");
      EXPECT_THAT(file, IsOk());
      std::array<uint8_t, 3> bytes = {};
      const auto look = [&] {
        switch (step) {
          case 0:
            return files.List("/d", Keep).status();
          case 1:
            return files.Stat("/d/a").status();
          case 2:
            return files.Open("/d/b").status();
          default:
            return ReadExactly(**file, 0, absl::MakeSpan(bytes));
        }
      };
      for (; step < 4; ++step) {
        if (step == at) scan_->is_cancelled = true;
        const absl::Status status = look();
        if (step < at) {
          EXPECT_THAT(status, IsOk());
        } else {
          EXPECT_THAT(status, cancelled);
        }
      }
      // A reader may take it for a fault of the file's.
      return absl::DataLossError("/d/a: cannot be read");
    };
    EXPECT_THAT(OpenScanned(files_, scan_, open), cancelled);
  }
}

TEST_F(SourceScanTest, AListingEndsOnceItIsCancelled) {
  const auto open = [this](const FileSystem& files) -> Opened {
    const auto listed = files.List("/d", [this](const FileInfo&) {
      scan_->is_cancelled = true;
      return absl::OkStatus();
    });
    EXPECT_THAT(listed, StatusIs(absl::StatusCode::kCancelled));
    return listed.status();
  };
  EXPECT_THAT(OpenScanned(files_, scan_, open),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(num_entries(), 2);
}

TEST_F(SourceScanTest, WhatIsOpenReadsOnAndIsNotCounted) {
  // A source that reads its file when it is asked to.
  class LateSource : public FakeSource {
   public:
    LateSource(const FileSystem& files, SourceGate* gate)
        : FakeSource(10, 1, "/d/a", 7, gate), files_(files) {}
    absl::Status Fetch(int64_t, RawSample& raw) const override {
      auto file = files_.Open("/d/b");
      if (!file.ok()) return file.status();
      raw.parts.assign(1, std::vector<uint8_t>(2));
      return ReadExactly(**file, 0, absl::MakeSpan(raw.parts[0]));
    }

   private:
    const FileSystem& files_;
  };
  const auto source =
      OpenScanned(files_, scan_, [this](const FileSystem& files) -> Opened {
        return std::make_unique<LateSource>(files, &gate_);
      });
  ASSERT_THAT(source, IsOk());
  scan_->is_cancelled = true;
  RawSample raw;
  EXPECT_THAT((*source)->Fetch(0, raw), IsOk());
  EXPECT_EQ(raw.parts[0][1], 'e');
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(SourceScanTest, AnErrorIsTheReaders) {
  EXPECT_THAT(OpenScanned(files_, scan_,
                          [](const FileSystem& files) -> Opened {
                            return files.Open("/d/x").status();
                          }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/d/x")));
}

}  // namespace
}  // namespace datasetd
