// Samples of their own size, from an encoded source to memory: as they are,
// with what the budget, the cache and the dry run say of them.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cache/dataset_cache.h"
#include "server/load/load_plan.h"
#include "server/load/sample_loader.h"
#include "server/load/sample_scan.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_encoded_source.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/ops.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeEncodedSource;
using ::datasetd::testing::FaultPlan;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::Op;
using ::datasetd::testing::SetPretransforms;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr int64_t kNumSamples = 2000;

ImageSize SizeOf(int64_t index) {
  return {20 + index * 7 % 90, 30 + index * 13 % 110};
}

// Sample `row` of the dataset must be sample `index` of the source.
void ExpectSample(const Dataset& dataset, int64_t row, int64_t index) {
  int64_t label = 0;
  std::memcpy(&label, dataset.field_data(1) + row * 8, sizeof(label));
  EXPECT_EQ(label, 1000 + index) << "row " << row;
  const RaggedSample& place = dataset.field_index_data(0)[row];
  const ImageSize size = SizeOf(index);
  ASSERT_EQ(place.height, size.height) << "row " << row;
  ASSERT_EQ(place.width, size.width) << "row " << row;
  EXPECT_EQ(place.offset_bytes % kRaggedAlignmentBytes, 0);
  const uint8_t* pixel = dataset.field_data(0) + place.offset_bytes;
  int64_t num_wrong = 0;
  for (int64_t y = 0; y < size.height; ++y) {
    num_wrong += FakeEncodedSource::IsRow(
                     index, y, 0, {pixel, static_cast<size_t>(size.width)})
                     ? 0
                     : 1;
    pixel += size.width;
  }
  EXPECT_EQ(num_wrong, 0) << "row " << row;
  while ((pixel - dataset.field_data(0)) % kRaggedAlignmentBytes != 0) {
    EXPECT_EQ(*pixel++, 0) << "after row " << row;
  }
}

int64_t BytesOf(const std::vector<int64_t>& indices) {
  int64_t bytes = 0;
  for (const int64_t index : indices) {
    const ImageSize size = SizeOf(index);
    bytes += (size.height * size.width + 15) / 16 * 16;
  }
  return bytes;
}

std::vector<int64_t> AllSamples() {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < kNumSamples; ++i) all.push_back(i);
  return all;
}

// ---- The loader alone ----

class RaggedLoadTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Dataset>> Load(
      FakeEncodedSource& source, Backend* backend = nullptr) {
    if (backend == nullptr) backend = backend_.get();
    auto plan = Plan(source);
    if (!plan.ok()) return plan.status();
    plan_ = *plan;
    LoadCounters counters;
    auto dataset = LoadDataset("a", plan_, source, backend, Reservation(),
                               counters, {.budget = &decode_budget_});
    num_bytes_ = counters.num_bytes;
    return dataset;
  }
  absl::StatusOr<LoadPlan> Plan(FakeEncodedSource& source) {
    auto plan = PlanSource(CheckRequest(spec_).value(), source.info());
    if (!plan.ok() || !plan->needs_sizes()) return plan;
    plan->num_workers = num_threads_;
    const std::atomic<bool> is_cancelled = false;
    std::atomic<int64_t> num_scanned = 0;
    SampleScan scan(&source, &*plan, {.budget = &decode_budget_});
    DATASETD_RETURN_IF_ERROR(scan.Run(is_cancelled, num_scanned));
    DATASETD_RETURN_IF_ERROR(scan.result().mismatch);
    plan = PlanSource(CheckRequest(spec_).value(), source.info(), scan.sizes());
    if (plan.ok()) plan->num_workers = num_threads_;
    return plan;
  }

  v1::DatasetSpec spec_ = With(NamedSpec("a"), "max_bad_samples: 2000");
  int num_threads_ = 3;
  DecodeBudget decode_budget_{DecodeBudget::Limits()};
  LoadPlan plan_;
  int64_t num_bytes_ = 0;
  std::unique_ptr<Backend> backend_ = CreateHostBackend({.num_threads = 1});
};

TEST_F(RaggedLoadTest, SamplesKeepTheirSizes) {
  FakeEncodedSource source(kNumSamples, SizeOf);
  const auto dataset = Load(source);
  ASSERT_THAT(dataset, IsOk());
  for (int64_t i = 0; i < kNumSamples; ++i) ExpectSample(**dataset, i, i);
  const int64_t packed = BytesOf(AllSamples());
  const FieldSpec& field = (*dataset)->fields()[0];
  EXPECT_EQ(field.shape, (std::vector<int64_t>{-1, -1, 1}));
  EXPECT_EQ(field.smallest, (ImageSize{20, 30}));
  EXPECT_EQ(field.largest, (ImageSize{109, 139}));
  EXPECT_EQ(field.packed_bytes, packed);
  EXPECT_THAT((*dataset)->field_sizes(0), SizeIs(990));
  // Sample, index and label.
  EXPECT_EQ(plan_.resident_bytes, packed + kNumSamples * (16 + 8));
  EXPECT_EQ(num_bytes_, plan_.resident_bytes);
}

TEST_F(RaggedLoadTest, TheNumberOfThreadsChangesNothing) {
  std::set<std::string> hashes;
  for (const int num_threads : {1, 2, 8}) {
    num_threads_ = num_threads;
    FakeEncodedSource source(kNumSamples, SizeOf);
    const auto dataset = Load(source);
    ASSERT_THAT(dataset, IsOk());
    hashes.insert((*dataset)->content_hash());
  }
  EXPECT_THAT(hashes, SizeIs(1));
}

TEST_F(RaggedLoadTest, SamplesThatAreAlikeAreStoredAsEver) {
  FakeEncodedSource source(100, [](int64_t) { return ImageSize{7, 9}; });
  const auto dataset = Load(source);
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ((*dataset)->fields()[0].shape, (std::vector<int64_t>{7, 9, 1}));
  EXPECT_EQ((*dataset)->field_index(0), nullptr);
  EXPECT_EQ(plan_.resident_bytes, 100 * (63 + 8));
}

TEST_F(RaggedLoadTest, APretransformMayLeaveSizes) {
  SetPretransforms(
      spec_, "image",
      {Op("pad { padding { left: 1 top: 2 right: 3 bottom: 4 } }")});
  FakeEncodedSource source(300, SizeOf);
  const auto dataset = Load(source);
  ASSERT_THAT(dataset, IsOk());
  for (int64_t i = 0; i < 300; ++i) {
    const ImageSize size = SizeOf(i);
    const RaggedSample& place = (*dataset)->field_index_data(0)[i];
    ASSERT_EQ(place.height, size.height + 6);
    ASSERT_EQ(place.width, size.width + 4);
    const uint8_t* const pixels =
        (*dataset)->field_data(0) + place.offset_bytes;
    EXPECT_EQ(pixels[0], 0);
    EXPECT_EQ(pixels[2 * place.width + 1], FakeEncodedSource::Pixel(i, 0, 0));
  }
  SetPretransforms(spec_, "image",
                   {Op("resize { size { height: 8 width: 8 } }")});
  const auto plan = PlanSource(CheckRequest(spec_).value(), source.info());
  ASSERT_THAT(plan, IsOk());
  EXPECT_FALSE(plan->needs_sizes());
}

TEST_F(RaggedLoadTest, SkippedSamplesLeaveNoGap) {
  spec_.set_bad_samples(v1::BAD_SAMPLE_POLICY_SKIP);
  FakeEncodedSource source(kNumSamples, SizeOf);
  std::vector<int64_t> good;
  for (int64_t i = 0; i < kNumSamples; ++i) {
    if (i % 5 == 0) {
      source.SetBad(i, absl::DataLossError("torn"));
    } else if (i % 7 == 0) {
      source.SetBadHeader(i, absl::InvalidArgumentError("odd"));
    } else {
      good.push_back(i);
    }
  }
  const auto dataset = Load(source);
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ((*dataset)->num_samples(), static_cast<int64_t>(good.size()));
  for (size_t row = 0; row < good.size(); ++row) {
    ExpectSample(**dataset, static_cast<int64_t>(row), good[row]);
  }
  EXPECT_EQ((*dataset)->fields()[0].packed_bytes, BytesOf(good));
  EXPECT_EQ((*dataset)->bad_samples().num_samples,
            kNumSamples - static_cast<int64_t>(good.size()));
  // The hash is that of the good ones alone.
  FakeEncodedSource others(kNumSamples, SizeOf);
  for (int64_t i = 0; i < kNumSamples; ++i) {
    if (i % 5 == 0 || i % 7 == 0) {
      others.SetBadHeader(i, absl::DataLossError("torn"));
    }
  }
  const auto same = Load(others);
  ASSERT_THAT(same, IsOk());
  EXPECT_EQ((*same)->content_hash(), (*dataset)->content_hash());
}

TEST_F(RaggedLoadTest, ReplacedSamplesShareThePlaceOfTheGoodOne) {
  spec_.set_bad_samples(v1::BAD_SAMPLE_POLICY_REPLACE);
  FakeEncodedSource source(kNumSamples, SizeOf);
  std::vector<int64_t> good;
  for (int64_t i = 0; i < kNumSamples; ++i) {
    if (i % 9 == 0) {
      source.SetBad(i, absl::InvalidArgumentError("odd"));
    } else if (i % 9 == 1) {
      source.SetBadHeader(i, absl::DataLossError("torn"));
    } else {
      good.push_back(i);
    }
  }
  const auto dataset = Load(source);
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ((*dataset)->num_samples(), kNumSamples);
  for (int64_t i = 0; i < kNumSamples; ++i) {
    ExpectSample(**dataset, i, i < 2 ? 2 : i % 9 < 2 ? i / 9 * 9 - 1 : i);
  }
  EXPECT_EQ((*dataset)->fields()[0].packed_bytes, BytesOf(good));
}

TEST_F(RaggedLoadTest, ASampleThatHasChangedSinceIsABadOne) {
  FakeEncodedSource before(100, SizeOf);
  FakeEncodedSource now(100, [](int64_t i) {
    return i == 42 ? ImageSize{3, 5} : SizeOf(i);
  });
  const auto plan = Plan(before);
  ASSERT_THAT(plan, IsOk());
  LoadCounters counters;
  EXPECT_THAT(LoadDataset("a", *plan, now, backend_.get(), Reservation(),
                          counters, {.budget = &decode_budget_}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/fake/42: "), HasSubstr("become 3x5"),
                             HasSubstr("was 44x136"))));
}

TEST_F(RaggedLoadTest, WhatIsTooLargeIsRefusedBeforeTheLoad) {
  FakeEncodedSource source(10, [](int64_t i) {
    return i == 7 ? ImageSize{(1 << 24) + 1, 1} : SizeOf(i);
  });
  EXPECT_THAT(Load(source),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("/fake/7: "), HasSubstr("16777217x1"),
                             HasSubstr("at most 16777216"))));
  EXPECT_EQ(source.num_decoded(), 0);
}

TEST_F(RaggedLoadTest, LookingAtHeadersIsCancelledToo) {
  FakeEncodedSource source(1'000'000, SizeOf);
  auto plan = PlanSource(CheckRequest(spec_).value(), source.info());
  ASSERT_THAT(plan, IsOk());
  std::atomic<bool> is_cancelled = false;
  std::atomic<int64_t> num_probed = 0;
  source.OnProbe([&](int64_t index) {
    if (index == 1000) is_cancelled = true;
    ++num_probed;
  });
  std::atomic<int64_t> num_scanned = 0;
  SampleScan scan(&source, &*plan, {.budget = &decode_budget_});
  EXPECT_THAT(scan.Run(is_cancelled, num_scanned),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(num_probed, 900'000);
}

TEST_F(RaggedLoadTest, EveryFaultIsACleanError) {
  std::string hash;
  {
    FakeEncodedSource source(40, SizeOf);
    const auto dataset = Load(source);
    ASSERT_THAT(dataset, IsOk());
    hash = (*dataset)->content_hash();
  }
  for (const uint32_t kind : {testing::kFaultAllocate, testing::kFaultDevice}) {
    for (int64_t k = 1;; ++k) {
      ASSERT_LT(k, 1000);
      FaultPlan faults(kind, k);
      std::atomic<int> live_objects = 0;
      {
        FaultyBackend backend(CreateHostBackend({.num_threads = 1}), &faults,
                              &live_objects);
        FakeEncodedSource source(40, SizeOf);
        const auto dataset = Load(source, &backend);
        if (dataset.ok()) {
          EXPECT_EQ((*dataset)->content_hash(), hash);
        } else {
          EXPECT_THAT(dataset.status().message(), HasSubstr("injected fault"));
        }
      }
      EXPECT_EQ(live_objects, 0);
      if (!faults.has_fired() || HasFailure()) break;
    }
  }
}

// ---- With budget, cache and dry run ----

class RaggedRegistryTest : public ::testing::Test {
 protected:
  RaggedRegistryTest() { Start(int64_t{1} << 30); }
  ~RaggedRegistryTest() override {
    registry_.reset();
    cache_.reset();
  }

  void Start(uint64_t budget_bytes, const DecodeBudget::Limits& limits = {}) {
    registry_.reset();
    cache_.reset();
    auto directory = OpenStoreDirectory(path_);
    ASSERT_THAT(directory, IsOk());
    auto cache = DatasetCache::Open(
        *std::move(directory), {.total_bytes = int64_t{1} << 40},
        [](const char*, uint32_t, const std::string&, const absl::Status&) {});
    ASSERT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(budget_bytes);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.cache = cache_.get(),
                                 .decode_limits = limits},
        devices_.get(),
        [this](const v1::DatasetSpec&, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          auto source =
              std::make_unique<FakeEncodedSource>(kNumSamples, SizeOf);
          source->OnDecode([this](int64_t) { ++num_decoded_; });
          if (!files_.empty()) source->SetFiles(files_);
          return source;
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  }
  DatasetInfo Load() {
    EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
    const auto info = testing::AwaitLoaded(*registry_, "a", absl::Seconds(60));
    EXPECT_THAT(info, IsOk());
    return *info;
  }
  // Ends the registry, whose threads hand over what is to be stored.
  void AwaitStored() {
    const std::shared_ptr<const Dataset> dataset =
        registry_->Use("a", kAlice)->dataset();
    registry_.reset();
    ASSERT_TRUE(cache_->AwaitIdle(absl::Seconds(60)));
    ASSERT_NE(CacheFile(), "");
  }
  uint64_t used_bytes() const {
    return devices_->devices()[0].budget->used_bytes();
  }
  // The one file of the cache.
  std::string CacheFile() const {
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (file.path().extension() == ".cache") return file.path();
    }
    return "";
  }

  TempDir parent_;
  const std::string path_ = parent_.File("cache");
  RealClock clock_;
  std::atomic<int64_t> num_decoded_ = 0;
  std::vector<FileInfo> files_;  // of the source; its own if there is none
  std::unique_ptr<DatasetCache> cache_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
};

TEST_F(RaggedRegistryTest, BudgetAndDryRunCountWhatIsResident) {
  const auto estimated = registry_->sources().Estimate(NamedSpec("a"), kAlice);
  ASSERT_THAT(estimated, IsOk());
  const v1::LoadEstimate& estimate = *estimated;
  EXPECT_EQ(estimate.problem(), "");
  const DatasetInfo info = Load();
  ASSERT_EQ(info.state, DatasetState::kReady) << info.error;
  EXPECT_EQ(info.dataset.resident_bytes(),
            BytesOf(AllSamples()) + 24 * kNumSamples);
  EXPECT_EQ(used_bytes(), static_cast<uint64_t>(info.dataset.resident_bytes()));
  EXPECT_EQ(estimate.resident_bytes(), info.dataset.resident_bytes());
  ASSERT_EQ(estimate.fields_size(), info.dataset.fields_size());
  for (int f = 0; f < estimate.fields_size(); ++f) {
    EXPECT_EQ(estimate.fields(f).DebugString(),
              info.dataset.fields(f).DebugString());
  }
  EXPECT_EQ(info.dataset.fields(0).largest().height(), 109);
  EXPECT_EQ(info.dataset.fields(0).largest().width(), 139);
}

TEST_F(RaggedRegistryTest, TheHostsIndicesAreChargedAsLongAsTheyAreThere) {
  // So much for lists of each user.
  constexpr int64_t kIndexBytes = 2 * 16 * kNumSamples;
  constexpr int64_t kListBytes = 3 * kIndexBytes + kIndexBytes / 2;
  Start(int64_t{1} << 30, {.sample_bytes = kListBytes / 4});
  const auto load = [&](const char* name, const Caller& caller) {
    EXPECT_THAT(testing::Load(*registry_, NamedSpec(name), caller), IsOk());
    const auto info = testing::AwaitLoaded(*registry_, name, absl::Seconds(60));
    EXPECT_THAT(info, IsOk());
    return info->error;
  };
  const auto is_refused = StatusIs(
      absl::StatusCode::kResourceExhausted,
      AllOf(HasSubstr(absl::StrCat(kIndexBytes, " bytes of host memory")),
            HasSubstr("max_sample_memory_mib")));
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_THAT(load(name, kAlice), IsOk());
  }
  // A load that fails gives its memory back.
  EXPECT_THAT(load("d", kAlice), is_refused);
  EXPECT_THAT(load("e", kAlice), is_refused);
  EXPECT_THAT(load("f", kBob), IsOk());
  EXPECT_THAT(registry_->Unload("b", false, kAlice), IsOk());
  EXPECT_THAT(load("g", kAlice), IsOk());
}

TEST_F(RaggedRegistryTest, SizesOfSparseFilesAreAddedUpToTheLargestNumber) {
  files_.assign(3, {.path = "/fake/sparse", .size_bytes = int64_t{1} << 62});
  const auto estimate = registry_->sources().Estimate(NamedSpec("a"), kAlice);
  ASSERT_THAT(estimate, IsOk());
  EXPECT_EQ(estimate->source_bytes(), std::numeric_limits<int64_t>::max());
}

TEST_F(RaggedRegistryTest, OverBudgetIsToldBeforeASampleIsDecoded) {
  Start(1 << 20);
  const DatasetInfo info = Load();
  EXPECT_EQ(info.state, DatasetState::kFailed);
  EXPECT_THAT(info.error,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat(BytesOf(AllSamples()) +
                                              24 * kNumSamples))));
  EXPECT_EQ(num_decoded_, 0);
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(RaggedRegistryTest, TheCacheBringsThemBackAsTheyWere) {
  const DatasetInfo first = Load();
  AwaitStored();
  num_decoded_ = 0;
  Start(int64_t{1} << 30);
  const DatasetInfo second = Load();
  ASSERT_EQ(second.state, DatasetState::kReady) << second.error;
  EXPECT_EQ(num_decoded_, 0);
  EXPECT_EQ(cache_->counters().num_hits, 1u);
  EXPECT_EQ(second.dataset.content_hash(), first.dataset.content_hash());
  EXPECT_EQ(second.dataset.fields(0).DebugString(),
            first.dataset.fields(0).DebugString());
  EXPECT_EQ(second.dataset.resident_bytes(), first.dataset.resident_bytes());
  EXPECT_EQ(used_bytes(),
            static_cast<uint64_t>(first.dataset.resident_bytes()));
  const auto use = registry_->Use("a", kAlice);
  ASSERT_THAT(use, IsOk());
  for (int64_t i = 0; i < kNumSamples; ++i) {
    ExpectSample(*use->dataset(), i, i);
  }
}

TEST_F(RaggedRegistryTest, ADamagedEntryIsReadFromTheSourceAgain) {
  const DatasetInfo first = Load();
  AwaitStored();
  const std::string file = CacheFile();
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
  // Damages a byte of the index, which is last, then one of the samples.
  for (const int64_t offset : {size - 5, int64_t{5000}}) {
    {
      std::fstream stream(file,
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(offset);
      const char byte = static_cast<char>(stream.get());
      stream.seekp(offset);
      stream.put(static_cast<char>(byte ^ 1));
    }
    num_decoded_ = 0;
    Start(int64_t{1} << 30);
    const DatasetInfo second = Load();
    ASSERT_EQ(second.state, DatasetState::kReady) << second.error;
    EXPECT_EQ(num_decoded_, kNumSamples);
    EXPECT_EQ(second.dataset.content_hash(), first.dataset.content_hash());
    EXPECT_EQ(used_bytes(),
              static_cast<uint64_t>(first.dataset.resident_bytes()));
    AwaitStored();
  }
}

}  // namespace
}  // namespace datasetd
