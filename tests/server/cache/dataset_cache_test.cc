#include "server/cache/dataset_cache.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNumSamples = 1500;
constexpr int64_t kImageBytes = 3 * 32 * 32;  // so 4.6 MB: 2 blocks
constexpr int64_t kEntryBytes = 4096 + kNumSamples * kImageBytes;

std::string Id(char digit) { return std::string(64, digit); }

class DatasetCacheTest : public ::testing::Test {
 protected:
  DatasetCacheTest() : path_(parent_.File("cache")) { Open(); }
  ~DatasetCacheTest() override { cache_.reset(); }

  void Open(int64_t limit_bytes = int64_t{1} << 40,
            std::optional<int64_t> user_bytes = std::nullopt) {
    cache_.reset();
    auto directory = OpenStoreDirectory(path_);
    ASSERT_THAT(directory, IsOk());
    if (disk_ != nullptr) {
      directory = std::make_unique<testing::FaultyStoreDirectory>(
          *std::move(directory), disk_);
    }
    auto cache = DatasetCache::Open(
        *std::move(directory),
        {.total_bytes = limit_bytes, .user_bytes = user_bytes},
        [this](const char* event, uint32_t, const std::string& name,
               const absl::Status& status) {
          const std::lock_guard lock(events_mutex_);
          events_.push_back(
              absl::StrCat(event, " ", name, ": ", status.message()));
        });
    ASSERT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
  }

  // `seed` decides the samples, and with them the content hash.
  std::shared_ptr<const Dataset> MakeDataset(uint8_t seed) {
    Dataset::Contents contents;
    contents.name = "d";
    contents.backend = backend_.get();
    contents.num_samples = kNumSamples;
    contents.fields = {
        {.name = "image", .shape = {32, 32, 3}, .is_image = true}};
    auto memory = backend_->Allocate(kNumSamples * kImageBytes);
    EXPECT_THAT(memory, IsOk());
    const std::vector<uint8_t> samples = Samples(seed);
    std::copy(samples.begin(), samples.end(), (*memory)->data());
    contents.memory.push_back(*std::move(memory));
    contents.content_hash = Id(static_cast<char>('a' + seed % 6));
    return std::make_shared<const Dataset>(std::move(contents));
  }
  static std::vector<uint8_t> Samples(uint8_t seed) {
    std::vector<uint8_t> samples(kNumSamples * kImageBytes);
    uint32_t state = seed + 1u;
    for (uint8_t& byte : samples) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<uint8_t>(state >> 24);
    }
    return samples;
  }

  void Store(char id, uint8_t seed, uint32_t uid = 0) {
    if (datasets_.count(seed) == 0) datasets_[seed] = MakeDataset(seed);
    const auto& dataset = datasets_[seed];
    cache_->Store({.spec_id = Id(id),
                   .stored_by_uid = uid,
                   .class_names = {"cat", "dog"}},
                  dataset);
    ASSERT_TRUE(cache_->AwaitIdle(absl::Seconds(60)));
  }
  static absl::StatusOr<std::vector<uint8_t>> ReadAll(CachedSource& source,
                                                      int64_t chunk) {
    std::vector<uint8_t> samples(kNumSamples * kImageBytes);
    for (int64_t first = 0; first < kNumSamples; first += chunk) {
      const int64_t count = std::min(chunk, kNumSamples - first);
      const absl::Span<uint8_t> part(samples.data() + first * kImageBytes,
                                     count * kImageBytes);
      const absl::Status status =
          source.Read(first, count, absl::MakeConstSpan(&part, 1));
      if (!status.ok()) return status;
    }
    return samples;
  }
  std::string FileOf(char id) { return path_ + "/" + Id(id) + ".cache"; }
  void Damage(const std::string& file, int64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const char byte = static_cast<char>(stream.get());
    stream.seekp(offset);
    stream.put(static_cast<char>(byte ^ 1));
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (file.path().filename() != "lock") {
        names.push_back(file.path().filename());
      }
    }
    return names;
  }
  std::vector<std::string> Events() {
    const std::lock_guard lock(events_mutex_);
    return events_;
  }

  TempDir parent_;
  const std::string path_;
  testing::FaultPlan* disk_ = nullptr;  // of the next Open
  std::unique_ptr<Backend> backend_ = CreateHostBackend({.num_threads = 1});
  std::map<uint8_t, std::shared_ptr<const Dataset>> datasets_;
  std::mutex events_mutex_;
  std::vector<std::string> events_;
  std::unique_ptr<DatasetCache> cache_;
};

TEST_F(DatasetCacheTest, WhatIsStoredIsFoundAlsoByTheNextOne) {
  EXPECT_EQ(cache_->Find(Id('1')), nullptr);
  Store('1', 0);
  for (const int64_t chunk : {kNumSamples, int64_t{1}, int64_t{1000}}) {
    const auto source = cache_->Find(Id('1'));
    ASSERT_NE(source, nullptr);
    EXPECT_EQ(source->info().num_samples, kNumSamples);
    EXPECT_EQ(source->info().fields[0].name, "image");
    EXPECT_THAT(source->info().class_names,
                ::testing::ElementsAre("cat", "dog"));
    EXPECT_EQ(*ReadAll(*source, chunk), Samples(0));
    cache_->CountHit(*source);
    Open();
  }
  EXPECT_EQ(cache_->used_bytes(), kEntryBytes);
  EXPECT_EQ(cache_->counters().num_misses, 0u);
}

TEST_F(DatasetCacheTest, TheLeastRecentlyUsedMakesRoomAlsoAfterARestart) {
  Open(2 * kEntryBytes);
  Store('1', 1);
  Store('2', 2);
  EXPECT_NE(cache_->Find(Id('1')), nullptr);
  Store('3', 3);
  EXPECT_EQ(cache_->Find(Id('2')), nullptr);
  EXPECT_EQ(cache_->counters().num_evicted, 1u);
  EXPECT_LE(cache_->used_bytes(), 2 * kEntryBytes);
  EXPECT_NE(cache_->Find(Id('1')), nullptr);  // after 3
  Open(kEntryBytes);
  EXPECT_NE(cache_->Find(Id('1')), nullptr);
  EXPECT_EQ(cache_->Find(Id('3')), nullptr);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(DatasetCacheTest, WhatIsLargerThanTheLimitIsNotStored) {
  Store('1', 1);
  Open(kEntryBytes - 1);
  EXPECT_THAT(Files(), IsEmpty());
  Store('2', 2);
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_THAT(Events(), Contains(HasSubstr("raise cache.limit_mib")));
  EXPECT_EQ(cache_->counters().num_errors, 0u);
}

TEST_F(DatasetCacheTest, AUsersEntriesMakeRoomForThatUsersAlsoAfterARestart) {
  Open(4 * kEntryBytes);
  Store('1', 1, /*uid=*/1001);
  for (const char id : {'2', '3', '4', '5', '6'}) Store(id, 2, /*uid=*/1002);
  EXPECT_NE(cache_->Find(Id('1')), nullptr);
  Open(4 * kEntryBytes);
  for (const char id : {'7', '8', '9'}) Store(id, 2, /*uid=*/1002);
  EXPECT_EQ(*ReadAll(*cache_->Find(Id('1')), 500), Samples(1));
  EXPECT_EQ(cache_->num_entries(), 3);
  EXPECT_EQ(cache_->counters().num_errors, 0u);
}

TEST_F(DatasetCacheTest, WhatIsLargerThanTheUsersLimitEvictsNothing) {
  Open(4 * kEntryBytes, kEntryBytes - 1);
  Store('1', 1, /*uid=*/1001);
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_THAT(Events(), Contains(HasSubstr("raise user_limits.max_cache_mib")));
  EXPECT_EQ(cache_->counters().num_errors, 0u);
}

TEST_F(DatasetCacheTest, EveryDamagedSixteenthIsNoticed) {
  for (int part = 0; part < 16; ++part) {
    Store('1', 4);
    Open();
    Damage(FileOf('1'), kEntryBytes * part / 16);
    const auto source = cache_->Find(Id('1'));
    if (part == 0) {
      EXPECT_EQ(source, nullptr);  // the header
    } else {
      ASSERT_NE(source, nullptr);
      const auto samples = ReadAll(*source, 100);
      EXPECT_THAT(samples, StatusIs(absl::StatusCode::kDataLoss,
                                    HasSubstr("field 'image', block")));
      EXPECT_TRUE(cache_->GiveUp(Id('1'), samples.status()));
    }
    EXPECT_THAT(Files(), IsEmpty());
    EXPECT_EQ(cache_->Find(Id('1')), nullptr);
    EXPECT_EQ(cache_->counters().num_errors, 1u);
    EXPECT_EQ(cache_->used_bytes(), 0);
  }
}

TEST_F(DatasetCacheTest, EveryCutIsNoticed) {
  for (int part = 0; part < 16; ++part) {
    Store('1', 4);
    Open();
    std::filesystem::resize_file(FileOf('1'), kEntryBytes * part / 16);
    EXPECT_EQ(cache_->Find(Id('1')), nullptr);
    EXPECT_THAT(Files(), IsEmpty());
  }
}

TEST_F(DatasetCacheTest, LeftoversAndDamageAreRemovedAtTheStart) {
  Store('1', 1);
  Store('2', 2);
  cache_.reset();
  Damage(FileOf('2'), 40);
  std::filesystem::rename(FileOf('1'), FileOf('3'));  // the wrong name
  std::ofstream(path_ + "/" + Id('4') + ".cache.tmp") << "half of it";
  std::ofstream(path_ + "/" + Id('5') + ".cache") << "";
  std::ofstream(path_ + "/notes.txt") << "not ours";
  Open();
  EXPECT_THAT(Files(), ::testing::ElementsAre("notes.txt"));
  EXPECT_EQ(cache_->counters().num_errors, 3u);
  EXPECT_EQ(cache_->used_bytes(), 0);
}

TEST_F(DatasetCacheTest, WhatTheDiskDoesNotGiveNowIsKept) {
  Store('1', 1);
  // After the listing: an open and two reads at the start, the same to find the
  // entry, and the samples.
  for (int64_t k = 2; k <= 8; ++k) {
    testing::FaultPlan disk(testing::kFaultRead, k);
    disk_ = &disk;
    Open();
    EXPECT_EQ(cache_->used_bytes(), kEntryBytes) << k;
    auto source = cache_->Find(Id('1'));
    EXPECT_EQ(source == nullptr, k >= 5 && k <= 7) << k;
    if (k == 8) {
      const auto samples = ReadAll(*source, 100);
      EXPECT_THAT(samples, StatusIs(absl::StatusCode::kUnavailable));
      EXPECT_TRUE(cache_->GiveUp(Id('1'), samples.status()));
    }
    EXPECT_EQ(cache_->counters().num_errors, 1u) << k;
    EXPECT_THAT(Events().back(),
                HasSubstr(k == 2 ? "not read, kept" : "injected fault"));
    source = cache_->Find(Id('1'));
    ASSERT_NE(source, nullptr) << k;
    EXPECT_THAT(ReadAll(*source, 100), IsOk());
    cache_.reset();
  }
  disk_ = nullptr;
}

TEST_F(DatasetCacheTest, AnErrorThatIsNoEntrysRemovesNone) {
  Store('1', 1);
  for (const absl::Status& status :
       {absl::OkStatus(), absl::CancelledError("x"),
        absl::ResourceExhaustedError("x"), absl::InternalError("x")}) {
    EXPECT_FALSE(cache_->GiveUp(Id('1'), status)) << status;
  }
  EXPECT_NE(cache_->Find(Id('1')), nullptr);
}

TEST_F(DatasetCacheTest, ADatasetThatGoesIsNotHeld) {
  auto dataset = MakeDataset(1);
  const std::weak_ptr<const Dataset> watch = dataset;
  cache_->Store({.spec_id = Id('1')}, dataset);
  dataset.reset();
  cache_->AwaitReleased();
  EXPECT_TRUE(watch.expired());
  ASSERT_TRUE(cache_->AwaitIdle(absl::Seconds(60)));
  // Whole, if it was faster; else not at all.
  if (!Files().empty()) {
    EXPECT_EQ(*ReadAll(*cache_->Find(Id('1')), 500), Samples(1));
  }
}

TEST_F(DatasetCacheTest, PushesAreStoredFirstAndAwaitedAlone) {
  const auto of_files = MakeDataset(1);
  const auto pushed = MakeDataset(2);
  EXPECT_TRUE(cache_->AwaitPushes(absl::ZeroDuration()));
  for (int i = 0; i < 20; ++i) {
    cache_->Store({.spec_id = Id('1')}, of_files);
    cache_->Store({.spec_id = Id('2'), .owner_uid = 5}, pushed);
    EXPECT_TRUE(cache_->AwaitPushes(absl::Seconds(60)));
    EXPECT_NE(cache_->Find(Id('2')), nullptr);
    ASSERT_TRUE(cache_->AwaitIdle(absl::Seconds(60)));
    EXPECT_NE(cache_->Find(Id('1')), nullptr);
    cache_.reset();
    std::filesystem::remove_all(path_);
    Open();
  }
}

TEST_F(DatasetCacheTest, WithoutALimitItTakesHalfOfWhatIsFree) {
  Store('1', 1);
  Open(0);
  EXPECT_GT(cache_->limit_bytes(), kEntryBytes);
  EXPECT_NE(cache_->Find(Id('1')), nullptr);
}

TEST_F(DatasetCacheTest, AnEntryOfTheVersionBeforeIsRemovedAndNoError) {
  Store('1', 0);
  cache_.reset();
  {
    std::fstream file(FileOf('1'),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);  // behind the magic
    file.put(1);
  }
  events_.clear();
  Open();
  EXPECT_EQ(cache_->Find(Id('1')), nullptr);
  EXPECT_FALSE(std::filesystem::exists(FileOf('1')));
  EXPECT_EQ(cache_->counters().num_errors, 0u);
  EXPECT_THAT(events_,
              ::testing::Contains(HasSubstr("of an earlier version, removed")));
}

class MappedCacheTest : public DatasetCacheTest {
 protected:
  // A header of two fields, so that one lies behind the other.
  static CacheHeader Header(char id, int64_t num_samples = kNumSamples) {
    CacheHeader header;
    header.spec_id = Id(id);
    header.content_hash = Id('c');
    header.num_samples = num_samples;
    header.fields = {{.name = "image", .shape = {32, 32, 3}, .is_image = true},
                     {.name = "label", .dtype = Dtype::kInt64, .shape = {}}};
    return header;
  }
  static void Fill(const MappedEntry& entry) {
    const std::vector<uint8_t> samples = Samples(1);
    std::copy(samples.begin(), samples.end(), entry.place(0).begin());
    std::fill(entry.place(1).begin(), entry.place(1).end(), 7);
  }
  static std::vector<uint8_t> Bytes(const MappedEntry& entry, size_t place) {
    const absl::Span<const uint8_t> bytes = entry.place(place);
    return {bytes.begin(), bytes.end()};
  }
  std::shared_ptr<const MappedEntry> Make(char id) {
    auto begun = cache_->Begin(Header(id));
    EXPECT_THAT(begun, IsOk());
    Fill(**begun);
    auto mapped = cache_->Finish(*std::move(begun), Header(id), is_cancelled_);
    EXPECT_THAT(mapped, IsOk());
    return *mapped;
  }
  const std::atomic<bool> is_cancelled_ = false;
};

TEST_F(MappedCacheTest, AMappedEntryIsAnEntryLikeOthers) {
  std::shared_ptr<const MappedEntry> mapped = Make('1');
  EXPECT_EQ(Bytes(*mapped, 0), Samples(1));
  EXPECT_EQ(Files(), std::vector<std::string>{Id('1') + ".cache"});
  EXPECT_EQ(cache_->num_entries(), 1);
  EXPECT_EQ(cache_->used_bytes(),
            static_cast<int64_t>(std::filesystem::file_size(FileOf('1'))));
  mapped.reset();
  Open();
  const auto source = cache_->Find(Id('1'));
  ASSERT_NE(source, nullptr);
  std::vector<uint8_t> images(kNumSamples * kImageBytes);
  std::vector<uint8_t> labels(kNumSamples * 8);
  const absl::Span<uint8_t> fields[] = {absl::MakeSpan(images),
                                        absl::MakeSpan(labels)};
  ASSERT_THAT(source->Read(0, kNumSamples, fields), IsOk());
  EXPECT_EQ(images, Samples(1));
  const auto again = cache_->Map(Id('1'), Id('c'), is_cancelled_);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(Bytes(**again, 1), labels);
  EXPECT_THAT(cache_->Map(Id('2'), Id('c'), is_cancelled_),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(cache_->Map(Id('1'), Id('d'), is_cancelled_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("has other samples by now")));
  const std::atomic<bool> was_cancelled = true;
  EXPECT_THAT(cache_->Map(Id('1'), Id('c'), was_cancelled),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(MappedCacheTest, WhatIsBegunAndNotFinishedLeavesNothing) {
  auto begun = cache_->Begin(Header('1'));
  ASSERT_THAT(begun, IsOk());
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_GT(cache_->used_bytes(), 0);
  const std::atomic<bool> was_cancelled = true;
  EXPECT_THAT(cache_->Finish(*begun, Header('1'), was_cancelled),
              StatusIs(absl::StatusCode::kCancelled));
  begun->reset();
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_EQ(cache_->used_bytes(), 0);
}

TEST_F(MappedCacheTest, FewerSamplesAndMoreBadOnesThanExpected) {
  auto begun = cache_->Begin(Header('1'));
  ASSERT_THAT(begun, IsOk());
  Fill(**begun);
  CacheHeader header = Header('1', kNumSamples - 9);
  header.bad_samples = {.num_samples = 9,
                        .listed = {{.reason = std::string(9000, 'b')}},
                        .num_text_bytes = 9000};
  const auto mapped = cache_->Finish(*std::move(begun), header, is_cancelled_);
  ASSERT_THAT(mapped, IsOk());
  std::vector<uint8_t> images = Samples(1);
  images.resize((kNumSamples - 9) * kImageBytes);
  EXPECT_EQ(Bytes(**mapped, 0), images);
  EXPECT_EQ(Bytes(**mapped, 1), std::vector<uint8_t>((kNumSamples - 9) * 8, 7));
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(cache_->Find(Id('1'))->info().bad_samples, header.bad_samples);
  EXPECT_THAT(cache_->Map(Id('1'), Id('c'), is_cancelled_), IsOk());
}

TEST_F(MappedCacheTest, FewerSamplesNeedTheRoomOfASecondEntry) {
  Open(3 * kEntryBytes / 2);
  auto begun = cache_->Begin(Header('1'));
  ASSERT_THAT(begun, IsOk());
  Fill(**begun);
  EXPECT_THAT(
      cache_->Finish(*std::move(begun), Header('1', kNumSamples - 9),
                     is_cancelled_),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("samples were left out"),
                     HasSubstr("a second time"), HasSubstr("'replace'"))));
}

TEST_F(MappedCacheTest, WhatIsInUseIsNotEvicted) {
  Open(3 * kEntryBytes);
  const auto mapped = Make('1');
  Store('2', 2);
  const auto second = cache_->Begin(Header('3'));  // 2 goes
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(cache_->Find(Id('2')), nullptr);
  EXPECT_THAT(cache_->Begin(Header('4')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("uses it for mapped datasets")));
  EXPECT_EQ(Bytes(*mapped, 0), Samples(1));
}

TEST_F(MappedCacheTest, OnceItIsNotInUseItMakesRoom) {
  Open(2 * kEntryBytes);
  auto mapped = Make('1');
  EXPECT_THAT(cache_->Begin(Header('2')),
              StatusIs(absl::StatusCode::kResourceExhausted));
  mapped.reset();
  EXPECT_THAT(cache_->Begin(Header('2')), IsOk());
  EXPECT_EQ(cache_->Find(Id('1')), nullptr);
}

TEST_F(MappedCacheTest, DamageIsFoundBeforeItIsServed) {
  Make('1').reset();
  Damage(FileOf('1'), kEntryBytes - 100);
  EXPECT_THAT(cache_->Map(Id('1'), Id('c'), is_cancelled_),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("checksum of place 0, block 1 is wrong")));
}

TEST_F(MappedCacheTest, AFileThatIsCutWhileItIsUsedIsRemovedAfterwards) {
  auto mapped = Make('1');
  std::filesystem::resize_file(FileOf('1'), 4096);
  EXPECT_EQ(mapped->place(0)[0], 0);
  EXPECT_THAT(mapped->file().status(), StatusIs(absl::StatusCode::kDataLoss));
  mapped.reset();
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_EQ(cache_->used_bytes(), 0);
  EXPECT_THAT(Events(), Contains(HasSubstr("damaged, removed")));
}

TEST_F(MappedCacheTest, AFaultOfTheDiskWhileItIsUsedRemovesNothing) {
  auto mapped = Make('1');
  const auto size_bytes = std::filesystem::file_size(FileOf('1'));
  std::filesystem::resize_file(FileOf('1'), 4096);
  EXPECT_EQ(mapped->place(0)[0], 0);
  std::filesystem::resize_file(FileOf('1'), size_bytes);
  // As if nobody had cut it.
  EXPECT_THAT(mapped->file().status(), StatusIs(absl::StatusCode::kDataLoss));
  mapped.reset();
  EXPECT_EQ(cache_->num_entries(), 1);
  EXPECT_TRUE(std::filesystem::exists(FileOf('1')));
}

// They had the same id, and one may be damaged where the other is not.
TEST_F(MappedCacheTest, TheReleaseOfADiscardedEntryLeavesItsSuccessor) {
  Open(7'000'000);  // one entry
  auto first = Make('1');
  std::filesystem::resize_file(FileOf('1'), 4096);
  EXPECT_EQ(first->place(0)[0], 0);
  EXPECT_TRUE(cache_->GiveUp(Id('1'), absl::DataLossError("torn")));
  // It needs room for itself while it is made and once more when it is done.
  const auto second = Make('1');
  first.reset();
  EXPECT_EQ(cache_->num_entries(), 1);
  EXPECT_THAT(cache_->Begin(Header('2')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("uses it for mapped datasets")));
  EXPECT_TRUE(std::filesystem::exists(FileOf('1')));
}

// Its files are not created before Open.
class GatedDirectory final : public testing::FaultyStoreDirectory {
 public:
  GatedDirectory(std::unique_ptr<StoreDirectory> directory,
                 testing::FaultPlan* plan, std::promise<void>* reached,
                 std::shared_future<void> opened)
      : FaultyStoreDirectory(std::move(directory), plan),
        reached_(reached),
        opened_(std::move(opened)) {}
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& name) override {
    reached_->set_value();
    opened_.wait();
    return FaultyStoreDirectory::Create(name);
  }

 private:
  std::promise<void>* const reached_;
  const std::shared_future<void> opened_;
};

TEST_F(MappedCacheTest, WhatIsBeingStoredHasItsRoom) {
  cache_.reset();
  testing::FaultPlan plan(0, 0);
  std::promise<void> reached;
  std::promise<void> opened;
  auto directory = OpenStoreDirectory(path_);
  ASSERT_THAT(directory, IsOk());
  auto cache = DatasetCache::Open(
      std::make_unique<GatedDirectory>(*std::move(directory), &plan, &reached,
                                       opened.get_future().share()),
      {.total_bytes = 7'000'000},
      [](const char*, uint32_t, const std::string&, const absl::Status&) {});
  ASSERT_THAT(cache, IsOk());
  cache_ = *std::move(cache);
  const auto dataset = MakeDataset(1);
  cache_->Store({.spec_id = Id('1')}, dataset);
  reached.get_future().wait();
  EXPECT_THAT(cache_->Begin(Header('2')),
              StatusIs(absl::StatusCode::kResourceExhausted));
  opened.set_value();
  ASSERT_TRUE(cache_->AwaitIdle(absl::Seconds(60)));
  EXPECT_EQ(Files(), std::vector<std::string>{Id('1') + ".cache"});
  EXPECT_EQ(cache_->num_entries(), 1);
  EXPECT_EQ(cache_->used_bytes(), kEntryBytes);
  EXPECT_THAT(cache_->Begin(Header('2')), IsOk());
}

TEST_F(MappedCacheTest, AnEntryThatIsInUseIsSharedIfItIsTheSame) {
  const auto first = Make('1');
  const auto second = Make('1');
  EXPECT_EQ(first->file().path(), second->file().path());
  EXPECT_EQ(cache_->num_entries(), 1);
  auto begun = cache_->Begin(Header('1'));
  ASSERT_THAT(begun, IsOk());
  CacheHeader other = Header('1');
  other.content_hash = Id('d');
  EXPECT_THAT(cache_->Finish(*std::move(begun), other, is_cancelled_),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("is in use")));
  EXPECT_EQ(Files().size(), 1u);
}

}  // namespace
}  // namespace datasetd
