#include "server/load/sample_loader.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/content_hasher.h"
#include "base/digest.h"
#include "base/mutex.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_encoded_source.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeEncodedSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kExtent = 64;

// Many sizes, none smaller than kExtent; the first one is the largest.
ImageSize ManySizes(int64_t index) {
  if (index == 0) return {200, 300};
  return {kExtent + index * 7 % 90, kExtent + index * 13 % 110};
}

ImageSize OneSize(int64_t) { return {kExtent, kExtent}; }

// The plan of a load whose samples are of one size after the ops.
absl::StatusOr<LoadPlan> Plan(const SourceInfo& source, const Transforms& ops) {
  const LoadRequest request = {
      .spec = std::make_shared<const v1::DatasetSpec>(),
      .pretransforms = {{source.fields[0].name, ops}}};
  return PlanSource(
      request, source,
      std::vector<std::optional<SampleSizes>>(source.fields.size()));
}

class DatasetLoaderTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Dataset>> Load(FakeEncodedSource& source,
                                                      const Transforms& ops) {
    auto plan = Plan(source.info(), ops);
    if (!plan.ok()) return plan.status();
    plan->bad_samples = policy_;
    plan->max_bad_samples = 1000;
    plan->num_workers = num_threads_;
    plan_ = *plan;
    return LoadDataset("a", *plan, source, backend_.get(), Reservation(),
                       counters_, account_, /*expected_hash=*/"", store_);
  }

  // Sample `row` of the dataset must be the middle of sample `index`.
  static void ExpectSample(const Dataset& dataset, int64_t row, int64_t index,
                           ImageSize size) {
    int64_t label = 0;
    std::memcpy(&label, dataset.field_data(1) + row * 8, sizeof(label));
    EXPECT_EQ(label, 1000 + index) << "row " << row;
    // Halves go to the even side, as torchvision's CenterCrop rounds.
    const auto begin = [](int64_t extent) {
      const int64_t lack = extent - kExtent;
      return lack / 2 + (lack % 2 == 1 && lack / 2 % 2 == 1 ? 1 : 0);
    };
    const uint8_t* pixel = dataset.field_data(0) + row * kExtent * kExtent;
    for (int64_t y = 0; y < kExtent; ++y, pixel += kExtent) {
      EXPECT_TRUE(FakeEncodedSource::IsRow(index, begin(size.height) + y,
                                           begin(size.width), {pixel, kExtent}))
          << "row " << row << ", " << y;
    }
  }

  const Transforms crop_ = {
      Op("center_crop { height: $0 width: $1 }", kExtent, kExtent)};
  v1::BadSamplePolicy policy_ = v1::BAD_SAMPLE_POLICY_FAIL;
  int num_threads_ = 3;
  LoadCounters counters_;
  DecodeBudget decode_budget_{DecodeBudget::Limits()};
  DecodeAccount account_ = {.budget = &decode_budget_};
  LoadPlan plan_;
  SampleStore* store_ = nullptr;
  std::unique_ptr<Backend> backend_ = CreateHostBackend({.num_threads = 1});
};

TEST_F(DatasetLoaderTest, SamplesOfAnySizeBecomeOne) {
  FakeEncodedSource source(5000, ManySizes);
  const auto dataset = Load(source, crop_);
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ((*dataset)->num_samples(), 5000);
  EXPECT_EQ((*dataset)->fields()[0], (FieldSpec{.name = "image",
                                                .shape = {kExtent, kExtent, 1},
                                                .is_image = true}));
  for (int64_t i = 0; i < 5000; i += 7) {
    ExpectSample(**dataset, i, i, ManySizes(i));
  }
  EXPECT_EQ(counters_.num_samples, 5000);
  EXPECT_EQ(counters_.num_bytes, 5000 * (kExtent * kExtent + 8));
  EXPECT_EQ(plan_.resident_bytes, 5000 * (kExtent * kExtent + 8));
}

// Memory that is lost when its first sample is decoded.
class LostStore final : public SampleStore {
 public:
  explicit LostStore(Backend* backend) : backend_(backend) {}
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t, int64_t size_bytes) override {
    return backend_->Allocate(size_bytes);
  }
  absl::Status status() const override {
    return is_lost ? absl::DataLossError("the file was cut") : absl::OkStatus();
  }
  absl::Status Finish(Dataset::Contents&) override { return status(); }

  std::atomic<bool> is_lost = false;

 private:
  Backend* const backend_;
};

TEST_F(DatasetLoaderTest, ALostStoreEndsTheLoad) {
  LostStore store(backend_.get());
  store_ = &store;
  FakeEncodedSource source(5000, ManySizes);
  source.OnDecode([&](int64_t) { store.is_lost = true; });
  EXPECT_THAT(Load(source, crop_),
              StatusIs(absl::StatusCode::kDataLoss, "the file was cut"));
  EXPECT_LT(source.num_decoded(), 5000);
}

TEST_F(DatasetLoaderTest, ASampleThatTakesTooMuchMemoryIsABadOne) {
  // Its scratch memory is about thrice as large as itself.
  const Transforms ops = {
      Op("to_dtype { dtype: DTYPE_FLOAT16 }"), Op("rotate { angle: 30.0 }"),
      Op("center_crop { height: $0 width: $1 }", kExtent, kExtent)};
  constexpr int64_t kLarge = 3000;
  const auto size_of = [](int64_t index) {
    return index == 2 ? ImageSize{kLarge, kLarge} : OneSize(index);
  };
  DecodeBudget small({.sample_bytes = 1 << 20, .total_bytes = 2 << 20});
  account_.budget = &small;
  FakeEncodedSource failing(4, size_of);
  EXPECT_THAT(Load(failing, ops),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/fake/2: "), HasSubstr("it takes "),
                             HasSubstr("bytes of host memory"),
                             HasSubstr("max_sample_memory_mib"))));
  policy_ = v1::BAD_SAMPLE_POLICY_SKIP;
  FakeEncodedSource skipping(4, size_of);
  const auto dataset = Load(skipping, ops);
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ((*dataset)->num_samples(), 3);
  EXPECT_LE(small.peak_bytes(), 2 << 20);
  EXPECT_EQ(small.used_bytes(), 0);
  // With room for it, all of it is counted.
  account_.budget = &decode_budget_;
  policy_ = v1::BAD_SAMPLE_POLICY_FAIL;
  FakeEncodedSource fitting(4, size_of);
  EXPECT_THAT(Load(fitting, ops), IsOk());
  EXPECT_GE(decode_budget_.peak_bytes(), 9 * kLarge * kLarge);
}

// Samples that do not fit beside each other are read again, one after another.
TEST_F(DatasetLoaderTest, LoadsShareTheMemoryForSamples) {
  constexpr int64_t kSampleBytes = 200 * 300;
  DecodeBudget narrow(
      {.sample_bytes = 2 * kSampleBytes, .total_bytes = 2 * kSampleBytes});
  account_.budget = &narrow;
  num_threads_ = 8;
  FakeEncodedSource source(500, [](int64_t) { return ImageSize{200, 300}; });
  const auto dataset = Load(source, crop_);
  ASSERT_THAT(dataset, IsOk());
  for (int64_t i = 0; i < 500; i += 7) {
    ExpectSample(**dataset, i, i, {200, 300});
  }
  EXPECT_LE(narrow.peak_bytes(), 2 * kSampleBytes);
}

TEST_F(DatasetLoaderTest, TheNumberOfThreadsChangesNothing) {
  std::set<std::string> hashes;
  for (const int num_threads : {1, 2, 8}) {
    num_threads_ = num_threads;
    FakeEncodedSource source(3000, ManySizes);
    const auto dataset = Load(source, crop_);
    ASSERT_THAT(dataset, IsOk());
    hashes.insert((*dataset)->content_hash());
  }
  EXPECT_THAT(hashes, SizeIs(1));
}

TEST_F(DatasetLoaderTest, WithoutPretransformsAllMustBeOfOneSize) {
  FakeEncodedSource same(100, OneSize);
  const auto dataset = Load(same, {});
  ASSERT_THAT(dataset, IsOk());
  for (int64_t i = 0; i < 100; ++i) ExpectSample(**dataset, i, i, OneSize(i));
  FakeEncodedSource many(100, ManySizes);
  policy_ = v1::BAD_SAMPLE_POLICY_SKIP;  // is no way out
  EXPECT_THAT(Load(many, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("/fake/1: "), HasSubstr("71x77"),
                             HasSubstr("200x300"), HasSubstr("Resize"))));
}

TEST_F(DatasetLoaderTest, PretransformsMustGiveOneSize) {
  FakeEncodedSource source(100, ManySizes);
  EXPECT_THAT(Load(source, {Op("pad { padding { left: 1 } }")}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(StartsWith("/fake/1: "), HasSubstr("71x77"),
                             HasSubstr("make 71x78"), HasSubstr("200x301"))));
}

TEST_F(DatasetLoaderTest, SkippedSamplesLeaveNoGap) {
  policy_ = v1::BAD_SAMPLE_POLICY_SKIP;
  FakeEncodedSource source(4000, ManySizes);
  std::vector<int64_t> good;
  for (int64_t i = 0; i < 4000; ++i) {
    if (i % 5 == 0 && i != 5) {
      source.SetBad(i, absl::DataLossError("torn"));
    } else if (i == 6) {
      source.SetUnreadable(i, absl::PermissionDeniedError("not mine"));
    } else {
      good.push_back(i);
    }
  }
  const auto loaded = Load(source, crop_);
  ASSERT_THAT(loaded, IsOk());
  ASSERT_EQ((*loaded)->num_samples(), static_cast<int64_t>(good.size()));
  for (size_t row = 0; row < good.size(); row += 3) {
    ExpectSample(**loaded, static_cast<int64_t>(row), good[row],
                 ManySizes(good[row]));
  }
  EXPECT_EQ((*loaded)->bad_samples().num_samples, 800);
  EXPECT_EQ((*loaded)->bad_samples().num_transient, 1);
  EXPECT_EQ((*loaded)->bad_samples().listed[1].path, "/fake/6");
  EXPECT_EQ((*loaded)->bad_samples().listed[1].reason, "not mine");
  EXPECT_EQ(counters_.num_samples, static_cast<int64_t>(good.size()));
}

TEST_F(DatasetLoaderTest, ReplacedSamplesAreTheGoodOnesBefore) {
  policy_ = v1::BAD_SAMPLE_POLICY_REPLACE;
  FakeEncodedSource source(4000, ManySizes);
  for (int64_t i = 0; i < 4000; ++i) {
    if (i % 9 < 2) source.SetBad(i, absl::InvalidArgumentError("odd"));
  }
  const auto dataset = Load(source, crop_);
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ((*dataset)->num_samples(), 4000);
  for (int64_t i = 0; i < 4000; ++i) {
    const int64_t from = i < 2 ? 2 : i % 9 < 2 ? i / 9 * 9 - 1 : i;
    ExpectSample(**dataset, i, from, ManySizes(from));
  }
}

TEST_F(DatasetLoaderTest, NothingButBadSamplesIsAnError) {
  policy_ = v1::BAD_SAMPLE_POLICY_SKIP;
  FakeEncodedSource source(10, OneSize);
  for (int64_t i = 0; i < 10; ++i) {
    source.SetBad(i, absl::DataLossError("torn"));
  }
  EXPECT_THAT(Load(source, {}), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("all 10 samples are bad")));
}

TEST_F(DatasetLoaderTest, CancellingStopsTheThreads) {
  FakeEncodedSource source(1'000'000, [](int64_t) { return ImageSize{8, 8}; });
  source.OnDecode([this](int64_t index) {
    if (index == 5000) {
      counters_.is_cancelled.store(true, std::memory_order_relaxed);
    }
  });
  EXPECT_THAT(Load(source, {}), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(source.num_decoded(), 100'000);
}

TEST_F(DatasetLoaderTest, TheBuffersOfALoadAreCharged) {
  const int64_t most = MaxLoadBufferBytes(int64_t{1} << 30);
  DecodeBudget staging({.sample_bytes = most, .total_bytes = most});
  account_.staging = &staging;
  FakeEncodedSource source(1000, ManySizes);
  ASSERT_THAT(Load(source, crop_), IsOk());
  EXPECT_GE(staging.peak_bytes(), 3 * 512 * kExtent * kExtent);
  EXPECT_LE(staging.peak_bytes(), 5 * ((8 << 20) + 512));
  EXPECT_EQ(staging.used_bytes(), 0);
}

// Images whose pixels are (sample + row + column) mod 251, and labels.
class PlainSource : public SampleSource {
 public:
  PlainSource(int64_t num_samples, int64_t extent) : extent_(extent) {
    info_.num_samples = num_samples;
    info_.fields = {
        {.name = "image", .shape = {extent, extent, 1}, .is_image = true},
        {.name = "label", .dtype = Dtype::kInt64, .shape = {}}};
    for (int64_t i = 0; i < 251 + extent; ++i) {
      repeated_.push_back(Pixel(i, 0, 0));
    }
  }
  static uint8_t Pixel(int64_t sample, int64_t row, int64_t column) {
    return static_cast<uint8_t>((sample + row + column) % 251);
  }
  // Called at the beginning of each Read, by one thread at a time.
  void OnRead(std::function<absl::Status(int64_t first)> callback) {
    callback_ = std::move(callback);
  }
  void SetSequential() { info_.is_sequential = true; }

  const SourceInfo& info() const override { return info_; }
  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    EXPECT_TRUE(!info_.is_sequential || num_reading_.fetch_add(1) == 0);
    if (callback_) {
      MutexLock lock(&mutex_);
      if (absl::Status status = callback_(first); !status.ok()) return status;
    }
    EXPECT_THAT(fields[0],
                SizeIs(static_cast<size_t>(count * extent_ * extent_)));
    uint8_t* pixel = fields[0].data();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = first + i;
      for (int64_t row = 0; row < extent_; ++row) {
        std::memcpy(pixel, repeated_.data() + (sample + row) % 251,
                    static_cast<size_t>(extent_));
        pixel += extent_;
      }
      std::memcpy(fields[1].data() + i * 8, &sample, 8);
    }
    --num_reading_;
    return absl::OkStatus();
  }

 private:
  const int64_t extent_;
  SourceInfo info_;
  // A row from any value on. Tests are not optimized; a copy takes no time.
  std::vector<uint8_t> repeated_;
  Mutex mutex_;
  std::function<absl::Status(int64_t)> callback_;
  std::atomic<int> num_reading_ = 0;
};

// Plain sources on a device whose work runs only when it is waited for.
class PlainLoadTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Dataset>> Load(PlainSource& source,
                                                      const Transforms& ops) {
    auto plan = Plan(source.info(), ops);
    if (!plan.ok()) return plan.status();
    plan->num_workers = num_threads_;
    plan_ = *plan;
    return LoadDataset("a", *plan, source, &backend_, Reservation(), counters_,
                       account_);
  }

  int num_threads_ = 3;
  FakeBackend backend_{{.needs_polling = true, .is_host = false}};
  LoadCounters counters_;
  DecodeBudget decode_budget_{DecodeBudget::Limits()};
  DecodeAccount account_ = {.budget = &decode_budget_};
  LoadPlan plan_;
};

TEST_F(PlainLoadTest, PretransformsRunOnTheHostAndNothingIsReadBack) {
  // Eight samples of 1 MiB are a chunk.
  constexpr int64_t kExtent = 1024;
  constexpr int64_t kSamples = 40;
  PlainSource source(kSamples, kExtent);
  std::map<int64_t, int> copies;
  source.OnRead([&](int64_t first) {
    EXPECT_TRUE(copies.emplace(first, backend_.num_copies()).second);
    return absl::OkStatus();
  });
  const auto dataset =
      Load(source, {Op("center_crop { height: 16 width: 16 }")});
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ(plan_.chunk_samples, 8);
  // A chunk is begun when that before the last was copied, once for each field.
  for (const auto& [first, count] : copies) {
    EXPECT_GE(count, 2 * (first / 8 - 1));
    EXPECT_LE(count, 2 * (first / 8));
  }
  EXPECT_EQ(backend_.num_copies(), 10);
  EXPECT_EQ(backend_.num_launches(), 0);
  for (int64_t i = 0; i < kSamples; ++i) {
    ASSERT_EQ((*dataset)->field_data(0)[i * 256],
              PlainSource::Pixel(i, 504, 504))
        << i;
    int64_t label = -1;
    std::memcpy(&label, (*dataset)->field_data(1) + i * 8, 8);
    ASSERT_EQ(label, i);
  }
  EXPECT_EQ(counters_.num_bytes, kSamples * (256 + 8));
}

TEST_F(PlainLoadTest, WithoutPretransformsAChunkIsReadAndCopiedAsItIs) {
  constexpr int64_t kExtent = 1024;
  PlainSource source(8, kExtent);
  std::map<int64_t, int> copies;
  source.OnRead([&](int64_t first) {
    EXPECT_TRUE(copies.emplace(first, backend_.num_copies()).second);
    return absl::OkStatus();
  });
  const auto dataset = Load(source, {});
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ(plan_.chunk_samples, 1);
  EXPECT_EQ(plan_.num_input_buffers, 0);
  EXPECT_THAT(copies, SizeIs(8));
  for (const auto& [first, count] : copies) {
    EXPECT_GE(count, 2 * (first - 1));
    EXPECT_LE(count, 2 * first);
  }
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ((*dataset)->field_data(0)[(i * kExtent + 3) * kExtent + 5],
              PlainSource::Pixel(i, 3, 5));
  }
}

TEST_F(PlainLoadTest, ASequentialSourceIsReadInOrderByOneThreadAtATime) {
  num_threads_ = 7;
  for (const Transforms& ops :
       {Transforms{},
        Transforms{Op("crop { top: 1 left: 2 height: 3 width: 3 }")}}) {
    PlainSource source(150'000, 8);
    source.SetSequential();
    int64_t last = -1;
    source.OnRead([&](int64_t first) {
      EXPECT_GT(first, last);
      last = first;
      return absl::OkStatus();
    });
    const auto dataset = Load(source, ops);
    ASSERT_THAT(dataset, IsOk());
    const int64_t size = (*dataset)->fields()[0].sample_bytes();
    for (int64_t i = 0; i < 150'000; ++i) {
      ASSERT_EQ((*dataset)->field_data(0)[i * size],
                ops.empty() ? PlainSource::Pixel(i, 0, 0)
                            : PlainSource::Pixel(i, 1, 2));
    }
  }
}

TEST_F(PlainLoadTest, ASequentialSourceIsReadUpToItsFirstError) {
  num_threads_ = 7;
  PlainSource source(300'000, 8);
  source.SetSequential();
  int num_errors = 0;
  source.OnRead([&](int64_t first) {
    if (first < 70'000) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("error ", ++num_errors));
  });
  EXPECT_THAT(Load(source, {}),
              StatusIs(absl::StatusCode::kDataLoss, "error 1"));
  EXPECT_EQ(num_errors, 1);
}

TEST_F(PlainLoadTest, TheHashIsThatOfTheSamplesAsTheyBecame) {
  PlainSource large(44, 1024);
  const auto cropped =
      Load(large, {Op("crop { top: 3 left: 3 height: 512 width: 512 }")});
  ASSERT_THAT(cropped, IsOk());
  // Four bytes of each pixel: what is staged is larger than what was read.
  PlainSource small(5000, 64);
  const auto floats = Load(small, {Op("to_dtype { dtype: DTYPE_FLOAT32 }")});
  ASSERT_THAT(floats, IsOk());
  for (const auto& dataset : {*cropped, *floats}) {
    ContentHasher hasher(2, 1);
    for (size_t f = 0; f < 2; ++f) {
      hasher.Add(f,
                 absl::MakeConstSpan(
                     dataset->field_data(f),
                     static_cast<size_t>(dataset->num_samples() *
                                         dataset->fields()[f].sample_bytes())));
    }
    const FieldSpec& image = dataset->fields()[0];
    EXPECT_EQ(dataset->content_hash(),
              HexDigest(absl::StrCat(
                  "datasetd content 2\n", dataset->num_samples(), "\n5:image ",
                  DtypeName(image.dtype), " ", image.shape[0], " ",
                  image.shape[1], " 1 image ", ToHex(hasher.Finish(0)),
                  "\n5:label int64 tensor ", ToHex(hasher.Finish(1)), "\n")));
  }
}

// Samples of 9 bytes begin anywhere in a chunk of several thousand, of which a
// thread takes many at a time.
TEST_F(PlainLoadTest, ManySmallSamplesAreTransformedTogether) {
  std::set<std::string> hashes;
  for (const int num_threads : {1, 2, 7}) {
    num_threads_ = num_threads;
    PlainSource source(150'000, 8);
    const auto dataset =
        Load(source, {Op("crop { top: 1 left: 2 height: 3 width: 3 }")});
    ASSERT_THAT(dataset, IsOk());
    EXPECT_GT(plan_.chunk_samples, 4096);
    for (int64_t i = 0; i < 150'000; ++i) {
      const uint8_t* const sample = (*dataset)->field_data(0) + i * 9;
      ASSERT_EQ(sample[0], PlainSource::Pixel(i, 1, 2)) << i;
      ASSERT_EQ(sample[8], PlainSource::Pixel(i, 3, 4)) << i;
    }
    hashes.insert((*dataset)->content_hash());
  }
  EXPECT_THAT(hashes, SizeIs(1));
}

TEST_F(PlainLoadTest, TheDeviceHoldsTheSamplesAloneAndTheHostWhatIsPlanned) {
  DecodeBudget staging({.sample_bytes = 1 << 30, .total_bytes = 1 << 30});
  account_.staging = &staging;
  PlainSource source(26, 1024);
  const size_t before = backend_.live_bytes();
  size_t most = 0;
  source.OnRead([&](int64_t) {
    most = std::max(most, backend_.live_bytes());
    return absl::OkStatus();
  });
  ASSERT_THAT(Load(source, {Op("rotate { angle: 30.0 }"),
                            Op("center_crop { height: 16 width: 16 }")}),
              IsOk());
  EXPECT_LE(most - before, static_cast<size_t>(plan_.resident_bytes +
                                               plan_.num_staging_buffers *
                                                   plan_.staging_bytes));
  EXPECT_EQ(plan_.num_input_buffers, 2);
  EXPECT_GE(plan_.input_bytes, 7 * 1024 * 1024);
  EXPECT_EQ(staging.peak_bytes(), plan_.buffer_bytes());
  EXPECT_GE(plan_.buffer_bytes(), 2 * plan_.input_bytes);
}

TEST_F(PlainLoadTest, ScratchMemoryOfPretransformsIsCharged) {
  const Transforms ops = {Op("rotate { angle: 30.0 }"),
                          Op("center_crop { height: 16 width: 16 }")};
  PlainSource source(12, 1024);
  ASSERT_THAT(Load(source, ops), IsOk());
  EXPECT_GE(decode_budget_.peak_bytes(), 4 * 16 * 16);
  EXPECT_EQ(decode_budget_.used_bytes(), 0);
  DecodeBudget small({.sample_bytes = 512, .total_bytes = 1024});
  account_.budget = &small;
  PlainSource again(12, 1024);
  EXPECT_THAT(Load(again, ops), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("max_sample_memory_mib")));
}

TEST_F(PlainLoadTest, AnErrorOfTheSourceLeavesNothing) {
  const int before = backend_.num_live_objects();
  PlainSource source(44, 1024);
  source.OnRead([](int64_t first) {
    return first < 24 ? absl::OkStatus()
                      : absl::DataLossError("image.npy: truncated at byte 24");
  });
  EXPECT_THAT(Load(source, {Op("center_crop { height: 16 width: 16 }")}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("image.npy: truncated at byte 24")));
  EXPECT_EQ(backend_.num_live_objects(), before);
}

TEST_F(PlainLoadTest, CancellingEndsBothChunks) {
  PlainSource source(44, 1024);
  source.OnRead([this](int64_t first) {
    if (first == 24) counters_.Cancel();
    return absl::OkStatus();
  });
  EXPECT_THAT(Load(source, {Op("center_crop { height: 16 width: 16 }")}),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(DatasetLoaderTest, HostMemoryIsStatedBeforeTheLoad) {
  FakeEncodedSource source(100'000, ManySizes);
  auto plan = Plan(source.info(), crop_);
  ASSERT_THAT(plan, IsOk());
  plan->num_workers = 4;
  EXPECT_EQ(plan->num_staging_buffers, 3);
  EXPECT_EQ(plan->chunk_samples, 512);
  EXPECT_LE(plan->staging_bytes, (8 << 20) + 512);
  EXPECT_EQ(plan->host_bytes(1000, 1 << 20), 3 * plan->staging_bytes + 4000);
  EXPECT_EQ(plan->host_bytes(int64_t{1} << 30, int64_t{3} << 30),
            3 * plan->staging_bytes + (int64_t{3} << 30));
}

}  // namespace
}  // namespace datasetd
