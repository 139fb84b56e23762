#include "server/feed/stager.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/ragged_index.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::FaultyStream;
using ::datasetd::testing::IsOk;
using ::testing::ElementsAre;

constexpr int32_t kListCopies = 50'000;

// Makes the copies at once, and keeps the lengths of the lists.
class StagingStream final : public FaultyStream {
 public:
  StagingStream(std::unique_ptr<Stream> stream, std::vector<int64_t>* lists)
      : FaultyStream(std::move(stream)), lists_(lists) {}
  absl::Status StageIn(const StageCopy* copies, int64_t num_copies) override {
    lists_->push_back(num_copies);
    DATASETD_RETURN_IF_ERROR(Synchronize());
    for (int64_t i = 0; i < num_copies; ++i) {
      memcpy(copies[i].to, copies[i].from,
             static_cast<size_t>(copies[i].size_bytes));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t>* const lists_;
};

class StagingBackend final : public FaultyBackend {
 public:
  explicit StagingBackend(std::vector<int64_t>* lists)
      : FaultyBackend(CreateHostBackend({.num_threads = 1})), lists_(lists) {}
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    DATASETD_ASSIGN_OR_RETURN(
        auto stream, backend().CreateStream(std::move(on_done), options));
    return std::make_unique<StagingStream>(std::move(stream), lists_);
  }

 private:
  std::vector<int64_t>* const lists_;
};

// Byte k of sample i of field f.
uint8_t ByteOf(size_t f, int64_t i, int64_t k) {
  return static_cast<uint8_t>(31 * f + 7 * i + k + i / 256);
}

class StagerTest : public ::testing::Test {
 protected:
  // A dataset in host memory. Its packed samples are 2x2, the last 60x50.
  void MakeDataset(std::vector<FieldSpec> fields) {
    Dataset::Contents contents;
    contents.name = "a";
    contents.backend = &backend_;
    contents.num_samples = kNumSamples;
    for (size_t f = 0; f < fields.size(); ++f) {
      FieldSpec& field = fields[f];
      auto& index = contents.packed.emplace_back().index;
      int64_t size_bytes = kNumSamples * field.sample_bytes();
      if (field.is_packed()) {
        index.emplace(PixelBytes(field));
        for (int64_t i = 1; i < kNumSamples; ++i) index->Add({2, 2});
        index->Add({60, 50});
        index->Describe(&field);
        size_bytes = index->size_bytes();
      }
      auto bytes = *backend_.AllocateHost(static_cast<size_t>(size_bytes));
      for (int64_t i = 0; i < kNumSamples; ++i) {
        const int64_t count =
            index ? index->sample_bytes(i) : field.sample_bytes();
        uint8_t* const at =
            bytes->data() +
            (index ? index->samples()[i].offset_bytes : i * count);
        for (int64_t k = 0; k < count; ++k) at[k] = ByteOf(f, i, k);
      }
      FieldMemory& memory = contents.memory.emplace_back();
      memory.Add(std::move(bytes));
      memory.EndExtent(0, size_bytes);
      sources_.push_back(f);
    }
    program_->num_fields = static_cast<int32_t>(fields.size());
    contents.fields = std::move(fields);
    dataset_ = std::make_unique<Dataset>(std::move(contents));
  }
  void MakeScalars(int count) {
    std::vector<FieldSpec> fields;
    for (int f = 0; f < count; ++f) {
      fields.push_back({.name = absl::StrCat("f", f), .dtype = Dtype::kInt32});
    }
    MakeDataset(std::move(fields));
  }
  void MakeStager(int64_t batch_size) {
    plan_ = PlanStaging(*dataset_, backend_, sources_, *program_, batch_size,
                        /*num_slots=*/4);
    ASSERT_TRUE(plan_.is_needed());
    auto stager = Stager::Create(plan_, *dataset_, backend_, 0, [] {});
    ASSERT_THAT(stager, IsOk());
    stager_ = *std::move(stager);
    stager_->SetSources(program_.get());
  }
  // Begins a launch of batches of these rows.
  void Begin(const std::vector<std::vector<int64_t>*>& batches) {
    tasks_.clear();
    for (std::vector<int64_t>* rows : batches) {
      BatchTask& task = tasks_.emplace_back();
      task.indices = rows->data();
      task.num_samples = static_cast<int32_t>(rows->size());
    }
    stager_->Begin(tasks_);
    stager_->NamePlaces(absl::MakeSpan(tasks_));
  }
  // True if all bytes of the row are where the program finds them.
  bool IsStaged(size_t batch, int32_t row) const {
    const BatchTask& task = tasks_[batch];
    const int64_t sample = task.samples[row];
    for (size_t f = 0; f < sources_.size(); ++f) {
      const FieldProgram& field = program_->fields[f];
      const uint8_t* from =
          field.source + task.indices[row] * field.sample_stride_bytes;
      int64_t count = dataset_->fields()[f].sample_bytes();
      if (field.ragged != nullptr) {
        const RaggedSample& found = field.ragged[task.indices[row]];
        from = field.source + found.offset_bytes;
        count = dataset_->field_index(f)->sample_bytes(sample);
        if (int64_t{3} * found.height * found.width != count) return false;
      }
      for (int64_t k = 0; k < count; ++k) {
        if (from[k] != ByteOf(f, sample, k)) return false;
      }
    }
    return true;
  }
  // Stages the only batch, with the look of a launch at each part.
  void StageAll(bool has_mix) {
    const int32_t num_rows = tasks_[0].num_samples;
    for (int32_t row = 0; row < num_rows; row = stager_->staged_end()) {
      EXPECT_FALSE(stager_->IsStaged(row));
      ASSERT_THAT(stager_->Stage(row), IsOk());
      ASSERT_TRUE(stager_->IsStaged(row));
      ASSERT_LE(lists_.back(), plan_.num_copies);
      if (has_mix) {
        EXPECT_TRUE(IsStaged(0, row == 0 ? num_rows - 1 : row - 1)) << row;
      }
      for (int32_t r = row; r < stager_->staged_end(); ++r) {
        ASSERT_TRUE(IsStaged(0, r)) << r;
      }
    }
  }
  static std::vector<int64_t> Rows(int32_t count) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(i * 37 % kNumSamples);
    return rows;
  }

  static constexpr int64_t kNumSamples = 1000;

  std::vector<int64_t> lists_;
  StagingBackend backend_{&lists_};
  std::unique_ptr<Dataset> dataset_;
  std::vector<size_t> sources_;
  std::unique_ptr<AugmentProgram> program_ = std::make_unique<AugmentProgram>();
  StagingPlan plan_;
  std::unique_ptr<Stager> stager_;
  std::vector<BatchTask> tasks_;
};

// Other feeds wait while a list is made.
TEST_F(StagerTest, ABatchOfManySmallSamplesIsStagedInParts) {
  MakeScalars(8);
  MakeStager(20'000);
  EXPECT_EQ(stager_->max_batches(), 1);
  std::vector<int64_t> rows = Rows(20'000);
  Begin({&rows});
  StageAll(/*has_mix=*/false);
  EXPECT_THAT(lists_,
              ElementsAre(kListCopies, kListCopies, kListCopies, 10'000));
  // All stay: moves are made at the end.
  for (int32_t r = 0; r < 20'000; ++r) ASSERT_TRUE(IsStaged(0, r)) << r;
  // The other half, with a batch that is not full.
  rows = Rows(9);
  Begin({&rows});
  StageAll(/*has_mix=*/false);
  EXPECT_EQ(lists_.back(), 72);
}

TEST_F(StagerTest, TheFirstRowIsMixedWithTheLastOne) {
  MakeScalars(8);
  program_->fields[3].mix.kind = MixKind::kMixUp;
  MakeStager(20'000);
  std::vector<int64_t> rows = Rows(20'000);
  Begin({&rows});
  StageAll(/*has_mix=*/true);
  EXPECT_THAT(lists_,
              ElementsAre(kListCopies + 8, kListCopies, kListCopies, 10'000));
}

TEST_F(StagerTest, ALaunchOfSeveralBatchesHasOneList) {
  MakeScalars(8);
  MakeStager(2'000);
  EXPECT_EQ(stager_->max_batches(), 3);
  std::vector<int64_t> one = Rows(2'000);
  std::vector<int64_t> two = Rows(2'000);
  Begin({&one, &two});
  ASSERT_THAT(stager_->Stage(0), IsOk());
  EXPECT_TRUE(stager_->IsStaged(1999));
  EXPECT_THAT(lists_, ElementsAre(32'000));
  for (const size_t batch : {0, 1}) {
    for (int32_t r = 0; r < 2'000; ++r) ASSERT_TRUE(IsStaged(batch, r)) << r;
  }
}

TEST_F(StagerTest, AWindowIsOneCopyForAllFieldsOfOneSource) {
  constexpr int64_t kSteps = 20;
  MakeScalars(1);
  sources_ = {0, 0};
  program_->num_fields = 2;
  plan_ = PlanStaging(*dataset_, backend_, sources_, *program_,
                      /*batch_size=*/5, /*num_slots=*/4,
                      {.shifts = {0, 3}, .num_steps = kSteps + 3});
  auto stager = Stager::Create(plan_, *dataset_, backend_, 0, [] {});
  ASSERT_THAT(stager, IsOk());
  stager_ = *std::move(stager);
  stager_->SetSources(program_.get());
  std::vector<int64_t> starts = {0, 977, 3, 4, 600};
  Begin({&starts});
  ASSERT_THAT(stager_->Stage(0), IsOk());
  EXPECT_THAT(lists_, ElementsAre(5));
  for (int32_t row = 0; row < 5; ++row) {
    for (const size_t f : {0, 1}) {
      const FieldProgram& field = program_->fields[f];
      const uint8_t* const from =
          field.source + tasks_[0].indices[row] * field.sample_stride_bytes;
      for (int64_t k = 0; k < kSteps * 4; ++k) {
        const int64_t step = starts[row] + (f == 0 ? 0 : 3) + k / 4;
        ASSERT_EQ(from[k], ByteOf(0, step, k % 4)) << row << " " << k;
      }
    }
  }
}

TEST_F(StagerTest, PackedSamplesThatDoNotFitAreStagedInParts) {
  MakeDataset({{.name = "image",
                .shape = {kAnyExtent, kAnyExtent, 3},
                .is_image = true},
               {.name = "label", .dtype = Dtype::kInt64}});
  program_->fields[0].mix.kind = MixKind::kCutMix;
  MakeStager(100);
  std::vector<int64_t> rows(100, kNumSamples - 1);
  rows[0] = 5;
  rows[50] = 6;
  Begin({&rows});
  StageAll(/*has_mix=*/true);
  EXPECT_GT(lists_.size(), 10u);
}

}  // namespace
}  // namespace datasetd
