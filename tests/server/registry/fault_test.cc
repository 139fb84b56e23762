// Load, serve and restart, with every call that may fail failing once: a clean
// error or none, right samples or none, and nothing left behind. The short form
// leaves out two of three places where most calls are alike.

#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cache/dataset_cache.h"
#include "server/feed/feed_table.h"
#include "server/readers/formats/formats.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/long_form.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FaultPlan;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::FaultyFileSystem;
using ::datasetd::testing::FaultyStoreDirectory;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::SpecOf;
using ::datasetd::testing::TempDir;
using ::testing::HasSubstr;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr absl::Duration kLong = absl::Seconds(60);
// More than one block of the cache.
constexpr int64_t kNumSamples = 1500;
constexpr int64_t kRecordBytes = 3073;
constexpr int64_t kBatchSize = 256;
constexpr size_t kNumBatches = 6;

uint8_t RecordByte(int64_t sample, int64_t i) {
  return i == 0 ? static_cast<uint8_t>(sample % 10)
                : static_cast<uint8_t>(sample * 7 + i * 13 + sample / 256);
}

// One daemon: what fails in it, and what is left when it has gone.
class Life {
 public:
  Life(const std::string& data, const std::string& cache, FaultPlan* plan)
      : data_(data), cache_path_(cache), plan_(plan) {}

  // Loads, serves one epoch and unloads; the first error, in words of the part
  // that failed.
  absl::Status Run() {
    const absl::Status status = RunParts();
    table_.reset();
    if (registry_ != nullptr) {
      const auto unloaded = registry_->Unload("d", true, kAlice);
      EXPECT_TRUE(unloaded.ok() || absl::IsNotFound(unloaded.status()))
          << unloaded.status();
    }
    if (cache_ != nullptr) {
      EXPECT_TRUE(cache_->AwaitIdle(kLong));
    }
    registry_.reset();
    num_used_ = cache_ == nullptr ? 0 : cache_->counters().num_hits.load();
    cache_.reset();
    if (devices_ != nullptr) {
      EXPECT_EQ(devices_->devices()[0].budget->used_bytes(), 0u);
    }
    EXPECT_EQ(live_objects_, 0);
    return status;
  }
  bool has_used_cache() const { return num_used_ > 0; }

 private:
  absl::Status RunParts() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<FaultyBackend>(
        CreateHostBackend({.num_threads = 2}), plan_, &live_objects_);
    devices[0].budget = std::make_unique<MemoryBudget>(256 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    DATASETD_ASSIGN_OR_RETURN(auto directory, OpenStoreDirectory(cache_path_));
    DATASETD_ASSIGN_OR_RETURN(
        cache_, DatasetCache::Open(std::make_unique<FaultyStoreDirectory>(
                                       std::move(directory), plan_),
                                   {.total_bytes = 1 << 30},
                                   [](const char*, uint32_t, const std::string&,
                                      const absl::Status&) {}));
    DATASETD_ASSIGN_OR_RETURN(auto files, CreateRootedFileSystem({data_}));
    files_ = std::make_unique<FaultyFileSystem>(std::move(files), plan_);
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.cache = cache_.get()}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>) {
          return OpenReader(spec, {*files_});
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    v1::DatasetSpec spec = SpecOf("cifar10", data_, "test");
    spec.set_name("d");
    DATASETD_RETURN_IF_ERROR(testing::Load(*registry_, spec, kAlice).status());
    DATASETD_ASSIGN_OR_RETURN(const DatasetInfo info,
                              testing::AwaitLoaded(*registry_, "d", kLong));
    EXPECT_NE(info.state, DatasetState::kLoading);
    DATASETD_RETURN_IF_ERROR(info.error);
    // Makes the order of calls independent of the cache's thread.
    EXPECT_TRUE(cache_->AwaitIdle(kLong));
    return Serve();
  }

  absl::Status Serve() {
    DATASETD_ASSIGN_OR_RETURN(
        table_, FeedTable::Create(
                    {}, devices_.get(), registry_.get(),
                    [this](uint32_t num_slots)
                        -> absl::StatusOr<std::unique_ptr<FeedChannel>> {
                      auto channel = std::make_unique<MemoryChannel>(num_slots);
                      channel_ = channel.get();
                      return channel;
                    },
                    &clock_, [](const char*, const FeedInfo&) {},
                    [this](uint64_t, const absl::Status& status) {
                      failure_ = status;
                      has_failed_.Notify();
                    }));
    v1::OpenFeedRequest request;
    v1::FeedOptions& options = *request.mutable_options();
    options.set_dataset("d");
    options.set_batch_size(kBatchSize);
    options.set_prefetch(8);  // so that nothing need be released
    DATASETD_ASSIGN_OR_RETURN(const v1::OpenFeedResponse opened,
                              table_->Open(request, kAlice));
    DATASETD_ASSIGN_OR_RETURN(
        const std::vector<int> descriptors,
        table_->Attach(opened.feed_id(), kAlice.session_id));
    if (channel_->AwaitPublishedOrClosed(kNumBatches) < kNumBatches) {
      EXPECT_TRUE(has_failed_.WaitForNotificationWithTimeout(kLong));
    }
    CheckBatches(opened, descriptors.back());
    table_->EndLease(opened.feed_id());
    table_->FreeSlab(opened.feed_id());
    if (has_failed_.HasBeenNotified()) return failure_;
    return absl::OkStatus();
  }

  // Checks the samples of all published batches, whatever failed.
  void CheckBatches(const v1::OpenFeedResponse& opened, int slab) {
    // Before the slots are read: more may be published meanwhile.
    const auto all_published = channel_->published();
    const size_t size_bytes = opened.slab().size_bytes();
    void* const mapped = mmap(nullptr, size_bytes, PROT_READ,
                              MAP_SHARED | MAP_POPULATE, slab, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    const uint8_t* const bytes = static_cast<const uint8_t*>(mapped);
    for (const auto& published : all_published) {
      const ring::SlotDescriptor& batch = published.batch;
      const uint8_t* const slot =
          bytes + published.slot * opened.layout().slot_stride_bytes();
      for (int64_t row = 0; row < batch.num_samples; ++row) {
        const int64_t sample =
            static_cast<int64_t>(batch.batch) * kBatchSize + row;
        const uint8_t* const image =
            slot + opened.layout().fields(0).offset_bytes() + row * 3072;
        for (int64_t i = 0; i < 3072; i += 61) {
          // Not EXPECT_EQ, which takes longer than all else here.
          if (image[i] == RecordByte(sample, 1 + i)) continue;
          ADD_FAILURE() << "batch " << batch.batch << ", row " << row
                        << ", byte " << i << " is " << int{image[i]};
          break;
        }
      }
    }
    munmap(mapped, size_bytes);
  }

  const std::string data_;
  const std::string cache_path_;
  FaultPlan* const plan_;
  std::atomic<int> live_objects_ = 0;
  uint64_t num_used_ = 0;
  RealClock clock_;
  absl::Status failure_;
  absl::Notification has_failed_;
  MemoryChannel* channel_ = nullptr;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetCache> cache_;
  std::unique_ptr<DatasetRegistry> registry_;
  std::unique_ptr<FeedTable> table_;
};

class FaultTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  FaultTest() : data_(parent_.File("data")) {
    std::filesystem::create_directory(data_);
    std::string records(kNumSamples * kRecordBytes, '\0');
    for (int64_t sample = 0; sample < kNumSamples; ++sample) {
      for (int64_t i = 0; i < kRecordBytes; ++i) {
        records[sample * kRecordBytes + i] =
            static_cast<char>(RecordByte(sample, i));
      }
    }
    std::ofstream(data_ + "/test_batch.bin", std::ios::binary) << records;
  }

  TempDir parent_;
  const std::string data_;
};

TEST_P(FaultTest, EveryCallOfALifeAndTheNextMayFail) {
  int num_errors = 0;
  int num_used = 0;
  const bool is_thorough =
      testing::IsFull() || GetParam() == testing::kFaultWrite;
  int64_t k = 1;
  for (;; k += is_thorough ? 1 : 3) {
    const std::string cache = parent_.File(absl::StrCat("cache", k));
    FaultPlan plan(GetParam(), k);
    for (int life = 0; life < 2; ++life) {
      Life daemon(data_, cache, &plan);
      const absl::Status status = daemon.Run();
      if (!status.ok()) {
        ++num_errors;
        EXPECT_THAT(std::string(status.message()),
                    ::testing::AnyOf(
                        HasSubstr("injected fault"), HasSubstr("ends early"),
                        HasSubstr("truncated"), HasSubstr("expected")))
            << k;
      }
      if (daemon.has_used_cache()) ++num_used;
    }
    // The third has no fault: whatever is on the disk, it serves.
    FaultPlan none(0, 0);
    Life last(data_, cache, &none);
    EXPECT_THAT(last.Run(), IsOk()) << k;
    for (const auto& file : std::filesystem::directory_iterator(cache)) {
      EXPECT_NE(file.path().extension(), ".tmp") << file.path();
    }
    std::filesystem::remove_all(cache);
    if (!plan.has_fired() || HasFailure()) break;
  }
  RecordProperty("calls", static_cast<int>(k - 1));
  EXPECT_GT(k, 5);
  // Not every fault may be shrugged off, and not every one may cost a load.
  if (GetParam() != testing::kFaultWrite) {
    EXPECT_GT(num_errors, 0);
  } else {
    EXPECT_EQ(num_errors, 0);
  }
  EXPECT_GT(num_used, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FaultTest,
    ::testing::Values(testing::kFaultAllocate, testing::kFaultDevice,
                      testing::kFaultRead, testing::kFaultWrite,
                      testing::kFaultShortRead),
    [](const ::testing::TestParamInfo<uint32_t>& info) -> std::string {
      switch (info.param) {
        case testing::kFaultAllocate:
          return "Allocate";
        case testing::kFaultDevice:
          return "Device";
        case testing::kFaultRead:
          return "Read";
        case testing::kFaultWrite:
          return "Write";
        default:
          return "ShortRead";
      }
    });

}  // namespace
}  // namespace datasetd
