#include "client/ctl/progress_line.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

v1::LoadProgress Progress(int64_t done, int64_t total, int64_t bytes,
                          double seconds) {
  v1::LoadProgress progress;
  progress.set_num_samples_loaded(done);
  progress.set_num_samples(total);
  progress.set_loaded_bytes(bytes);
  progress.set_elapsed_seconds(seconds);
  return progress;
}

TEST(ProgressLineTest, RateAndTimeLeftComeFromWhatIsDone) {
  EXPECT_EQ(FormatProgress(Progress(250, 1000, 5000000, 2.0), 8),
            "[##......]  25%  250/1000 samples  2.5 MB/s  ETA 6.0 s");
}

TEST(ProgressLineTest, NothingIsGuessedBeforeTheFirstSample) {
  EXPECT_EQ(FormatProgress(Progress(0, 1000, 0, 1.0), 4),
            "[....]   0%  0/1000 samples");
}

TEST(ProgressLineTest, HundredPercentIsDone) {
  EXPECT_EQ(FormatProgress(Progress(9999, 10000, 1000, 0), 0),
            " 99%  9999/10000 samples");
  EXPECT_EQ(FormatProgress(Progress(10000, 10000, 4000, 2.0), 0),
            "100%  10000/10000 samples  2.0 kB/s  in 2.0 s");
}

TEST(ProgressLineTest, MoreThanAllIsNoLongerBar) {
  EXPECT_EQ(FormatProgress(Progress(20, 10, 0, 0), 4),
            "[####] 100%  20/10 samples");
}

v1::LoadProgress Scan(int64_t num_entries) {
  v1::LoadProgress progress;
  progress.set_is_scanning(true);
  progress.set_num_entries_scanned(num_entries);
  return progress;
}

TEST(ProgressLineTest, AScanHasNoShare) {
  EXPECT_EQ(FormatProgress(Scan(70), 8), "scanning, 70 entries");
}

// The line writes to a file, which is no terminal.
class PlainLineTest : public ::testing::Test {
 protected:
  PlainLineTest() : out_(open_memstream(&text_, &size_)) {}
  ~PlainLineTest() override {
    std::fclose(out_);
    std::free(text_);
  }
  static v1::Dataset Loading(int64_t done) {
    v1::Dataset dataset;
    dataset.set_state(done < 4 ? v1::DATASET_STATE_LOADING
                               : v1::DATASET_STATE_READY);
    *dataset.mutable_progress() = Progress(done, 4, 0, 0);
    return dataset;
  }
  std::string text() {
    std::fflush(out_);
    return std::string(text_, size_);
  }

  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* out_;
};

TEST_F(PlainLineTest, TellsOfAScanAndOfNothingElseBeforeTheFirstSample) {
  const absl::Time start = absl::UnixEpoch();
  v1::Dataset dataset;
  dataset.set_state(v1::DATASET_STATE_LOADING);
  ProgressLine line("d", out_);
  line.Show(dataset, start);
  *dataset.mutable_progress() = Scan(9);
  line.Show(dataset, start);
  line.Show(Loading(4), start);
  EXPECT_EQ(text(), "d  scanning, 9 entries\nd  100%  4/4 samples\n");
}

TEST_F(PlainLineTest, WritesALineNowAndThenAndAlwaysTheLast) {
  const absl::Time start = absl::UnixEpoch();
  {
    ProgressLine line("d", out_);
    line.Show(Loading(1), start);
    line.Show(Loading(2), start + absl::Milliseconds(1999));
    line.Show(Loading(3), start + absl::Seconds(2));
    line.Show(Loading(4), start + absl::Milliseconds(2001));
  }
  EXPECT_EQ(text(),
            "d   25%  1/4 samples\n"
            "d   75%  3/4 samples\n"
            "d  100%  4/4 samples\n");
}

TEST_F(PlainLineTest, SaysNothingBeforeTheDaemonKnowsHowMany) {
  {
    ProgressLine line("d", out_);
    line.Show(v1::Dataset(), absl::UnixEpoch());
  }
  EXPECT_EQ(text(), "");
}

}  // namespace
}  // namespace datasetd::ctl
