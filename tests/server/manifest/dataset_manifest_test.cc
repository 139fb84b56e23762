#include "server/manifest/dataset_manifest.h"

#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/manifest/manifest_format.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SetOption;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// With an option of so many bytes.
DatasetInfo Info(const std::string& name, uint32_t uid,
                 size_t option_bytes = 0) {
  v1::DatasetSpec spec = With(NamedSpec(name), "pin: true");
  SetOption(spec, "o", std::string(option_bytes, 'x'));
  DatasetInfo info;
  info.spec = std::make_shared<const v1::DatasetSpec>(std::move(spec));
  info.owner.uid = uid;
  info.dataset.set_content_hash(std::string(64, 'a'));
  return info;
}

class DatasetManifestTest : public ::testing::Test {
 protected:
  DatasetManifestTest() : path_(parent_.File("state")) { Open(); }

  void Open() {
    manifest_.reset();
    auto directory = OpenStoreDirectory(path_);
    ASSERT_THAT(directory, IsOk());
    auto manifest = DatasetManifest::Open(
        *std::move(directory),
        [this](const char* event, const absl::Status& status) {
          events_.push_back(absl::StrCat(event, ": ", status.message()));
        });
    ASSERT_THAT(manifest, IsOk());
    manifest_ = *std::move(manifest);
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : manifest_->Entries()) {
      names.push_back(entry.spec().name());
    }
    return names;
  }
  std::string file() const { return path_ + "/datasets.manifest"; }

  TempDir parent_;
  const std::string path_;
  std::vector<std::string> events_;
  std::unique_ptr<DatasetManifest> manifest_;
};

TEST_F(DatasetManifestTest, WhatWasAddedIsThereAfterARestart) {
  EXPECT_THAT(Names(), IsEmpty());
  manifest_->Add(Info("a", 1000));
  manifest_->Add(Info("b", 1001));
  Open();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  const v1::Manifest::Entry entry = manifest_->Entries()[1];
  EXPECT_EQ(entry.owner_uid(), 1001u);
  EXPECT_EQ(entry.spec().path(), "/data/b");
  EXPECT_TRUE(entry.spec().pin());
  EXPECT_EQ(entry.content_hash(), std::string(64, 'a'));
  manifest_->Remove("a", 1000);
  manifest_->Remove("b", 1000);  // of another user
  manifest_->Remove("c", 1000);
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(DatasetManifestTest, AwaitWrittenMeansThatItIsOnTheDisk) {
  for (int i = 0; i < 20; ++i) {
    manifest_->Add(Info(absl::StrCat("d", i), 0));
    ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
    std::ifstream stream(file(), std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(stream)),
                           std::istreambuf_iterator<char>());
    const auto decoded = DecodeManifest(data);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->manifest.entries_size(), i + 1);
  }
}

// Whatever bit is flipped, at most the entry that has it is lost.
TEST(ManifestFormatTest, AFlippedBitCostsOneEntryAtMost) {
  v1::Manifest manifest;
  for (const char* const name : {"a", "b", "c"}) {
    v1::Manifest::Entry& entry = *manifest.add_entries();
    *entry.mutable_spec() = NamedSpec(name);
    entry.set_content_hash(std::string(64, 'a'));
  }
  const std::string whole = EncodeManifest(manifest);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const auto decoded = DecodeManifest(damaged);
    ASSERT_THAT(decoded, IsOk()) << bit;
    EXPECT_THAT(decoded->damage, StatusIs(absl::StatusCode::kDataLoss)) << bit;
    const auto& entries = decoded->manifest.entries();
    ASSERT_GE(entries.size(), 2) << bit;
    for (const v1::Manifest::Entry& entry : entries) {
      const std::string bytes = entry.SerializeAsString();
      EXPECT_THAT(
          manifest.entries(),
          ::testing::Contains(::testing::ResultOf(
              [](const auto& e) { return e.SerializeAsString(); }, bytes)))
          << bit;
    }
  }
}

TEST(ManifestFormatTest, ACutFileHasTheEntriesThatAreLeft) {
  v1::Manifest manifest;
  for (const char* const name : {"a", "b"}) {
    v1::Manifest::Entry& entry = *manifest.add_entries();
    *entry.mutable_spec() = NamedSpec(name);
    entry.set_content_hash(std::string(64, 'a'));
  }
  const std::string whole = EncodeManifest(manifest);
  const size_t index_bytes = (kManifestBytes + 2 * kManifestBytesOfEntry) / 2;
  const auto cut =
      DecodeManifest(whole.substr(0, whole.size() - index_bytes - 1));
  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ(cut->manifest.entries_size(), 1);
  EXPECT_THAT(cut->damage,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("entry 1 of 2")));
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto decoded = DecodeManifest(whole.substr(0, size));
    EXPECT_EQ(decoded.ok(), size >= index_bytes) << size;
    EXPECT_THAT(decoded.ok() ? decoded->damage : decoded.status(),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
}

// As version 1 wrote it.
std::string EncodeVersion1(const v1::Manifest& manifest) {
  const std::string message = manifest.SerializeAsString();
  const auto size = static_cast<uint32_t>(message.size());
  const uint64_t checksum = XXH3_64bits(message.data(), message.size());
  std::string file("dsdmanif\1\0\0\0", 12);
  file.append(reinterpret_cast<const char*>(&size), sizeof(size));
  file.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return file + message;
}

TEST_F(DatasetManifestTest, AListOfVersion1IsRead) {
  manifest_->Add(Info("a", 1000));
  manifest_->Add(Info("b", 1001));
  v1::Manifest manifest;
  for (const auto& entry : manifest_->Entries()) {
    *manifest.add_entries() = entry;
  }
  manifest_.reset();
  std::ofstream(file(), std::ios::binary) << EncodeVersion1(manifest);
  Open();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_THAT(events_, IsEmpty());
  manifest_->Remove("a", 1000);
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(DatasetManifestTest, ADamagedEntryIsLeftOutAndTheFileIsKept) {
  manifest_->Add(Info("a", 1000));
  manifest_->Add(Info("b", 1000));
  manifest_.reset();
  std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
  std::string data((std::istreambuf_iterator<char>(stream)),
                   std::istreambuf_iterator<char>());
  const size_t at = data.find("/data/a");
  ASSERT_NE(at, std::string::npos);
  stream.seekp(static_cast<std::streamoff>(at)) << "X";
  stream.close();
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
  EXPECT_THAT(events_, ElementsAre(AllOf(HasSubstr("damaged in part"),
                                         HasSubstr("entry 0 of 2"))));
  EXPECT_TRUE(std::filesystem::exists(file() + ".damaged"));
  // It was written again, without the damage.
  events_.clear();
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(DatasetManifestTest, AFileWithoutAnIndexIsSetAside) {
  manifest_->Add(Info("a", 1000));
  manifest_.reset();
  std::ofstream(file()) << std::string(100, 'x');
  Open();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(events_, ElementsAre(HasSubstr("damaged, set aside")));
  EXPECT_TRUE(std::filesystem::exists(file() + ".damaged"));
  manifest_->Add(Info("b", 1000));
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(DatasetManifestTest, ASpecBeyondTheLimitIsNotKept) {
  manifest_->Add(Info("a", 0, 2 << 20));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DatasetManifestTest, AFileThatCannotBeWrittenIsAnEvent) {
  // A directory is in the way.
  std::filesystem::create_directory(file());
  manifest_->Add(Info("a", 0));
  ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  EXPECT_THAT(events_, SizeIs(1));
  std::filesystem::remove(file());
  manifest_->Add(Info("b", 0));
  Open();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
}

// As when the disk was full, and the daemon ends later.
TEST_F(DatasetManifestTest, AWriteThatFailedIsTriedAgain) {
  std::filesystem::create_directory(file());
  manifest_->Add(Info("a", 0));
  ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  EXPECT_THAT(events_, SizeIs(2));
  std::filesystem::remove(file());
  ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  Open();
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(DatasetManifestTest, EveryCallThatFailsLeavesTheOldListOrTheNew) {
  int num_old = 0;
  int num_new = 0;
  for (int64_t k = 1;; ++k) {
    manifest_.reset();
    std::filesystem::remove(file());
    Open();
    manifest_->Add(Info("a", 0));
    manifest_.reset();
    testing::FaultPlan plan(testing::kFaultRead | testing::kFaultWrite, k);
    {
      auto directory = OpenStoreDirectory(path_);
      ASSERT_THAT(directory, IsOk());
      auto manifest =
          DatasetManifest::Open(std::make_unique<testing::FaultyStoreDirectory>(
                                    *std::move(directory), &plan),
                                [](const char*, const absl::Status&) {});
      if (manifest.ok()) {
        (*manifest)->Add(Info("b", 0));
      } else {
        EXPECT_THAT(manifest, StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr("injected fault")));
      }
    }
    Open();
    if (Names() == std::vector<std::string>{"a"}) {
      ++num_old;
    } else {
      EXPECT_THAT(Names(), ElementsAre("a", "b")) << k;
      ++num_new;
    }
    EXPECT_FALSE(std::filesystem::exists(file() + ".tmp"));
    if (!plan.has_fired()) break;
  }
  // Open, read; the journal's open; create, write, sync, rename.
  EXPECT_EQ(num_old, 7);
  EXPECT_EQ(num_new, 1);  // the round without a fault
}

TEST_F(DatasetManifestTest, WhatWasBeingReadAtTheEndIsKnownAtTheNextStart) {
  for (const char* const name : {"a", "b", "c"}) {
    manifest_->Add(Info(name, 1000));
  }
  const auto state_of = [this](const std::string& name) {
    for (const auto& entry : manifest_->Entries()) {
      if (entry.spec().name() == name) {
        return absl::StrCat(entry.num_interrupted(),
                            entry.is_suspect() ? " suspect" : "");
      }
    }
    return std::string("none");
  };
  manifest_->BeginRead("a");
  manifest_->EndRead("a");
  manifest_->BeginRead("b");
  Open();  // as after a crash: nothing else was said
  EXPECT_EQ(state_of("a"), "0");
  EXPECT_EQ(state_of("b"), "1 suspect");
  EXPECT_THAT(events_.back(), HasSubstr("was restoring when it ended: b"));
  // Counted once.
  Open();
  EXPECT_EQ(state_of("b"), "1 suspect");
  manifest_->BeginRead("b");
  Open();
  EXPECT_EQ(state_of("b"), "2 suspect");
  // If several were being read, no interruption is counted against any.
  manifest_->BeginRead("b");
  manifest_->BeginRead("c");
  Open();
  EXPECT_EQ(state_of("b"), "2 suspect");
  EXPECT_EQ(state_of("c"), "0 suspect");
  // One that ends, in whatever way, or is READY, is no suspect.
  manifest_->BeginRead("b");
  manifest_->EndRead("b");
  manifest_->EndRestore("b");
  manifest_->Add(Info("c", 1000));
  Open();
  EXPECT_EQ(state_of("b"), "0");
  EXPECT_EQ(state_of("c"), "0");
  // Nor is what a clean end of the process breaks off.
  manifest_->BeginRead("b");
  manifest_->ForgetReading();
  EXPECT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  manifest_->BeginRead("c");
  Open();
  EXPECT_EQ(state_of("b"), "0");
  EXPECT_EQ(state_of("c"), "0");
}

TEST_F(DatasetManifestTest, WhatWasBeingReadTogetherSharesOneEnd) {
  const auto ends = [this] {
    std::vector<uint32_t> ends;
    for (const auto& entry : manifest_->Entries()) {
      ends.push_back(entry.shared_end());
    }
    return ends;
  };
  for (const char* const name : {"a", "b", "c", "d"}) {
    manifest_->Add(Info(name, 1000));
  }
  manifest_->BeginRead("a");
  Open();
  EXPECT_THAT(ends(), ElementsAre(0, 0, 0, 0));
  manifest_->BeginRead("a");
  manifest_->BeginRead("b");
  Open();
  EXPECT_THAT(ends(), ElementsAre(1, 1, 0, 0));
  manifest_->BeginRead("c");
  manifest_->BeginRead("d");
  Open();
  EXPECT_THAT(ends(), ElementsAre(1, 1, 2, 2));
  manifest_->EndRestore("a");
  Open();
  EXPECT_THAT(ends(), ElementsAre(0, 1, 2, 2));
}

TEST_F(DatasetManifestTest, AJournalThatMakesNoSenseIsNoReasonNotToStart) {
  manifest_->Add(Info("a", 1000));
  for (const std::string& text :
       {std::string(), std::string("datasetd restoring 9\na"),
        std::string("datasetd restoring 1\n../b\nx\n\n"),
        std::string(1000, '\0')}) {
    manifest_.reset();
    std::ofstream(path_ + "/restoring", std::ios::binary) << text;
    Open();
    EXPECT_FALSE(manifest_->Entries()[0].is_suspect());
  }
}

TEST_F(DatasetManifestTest, OneUserFillsTheListForNobodyElse) {
  for (int i = 10; i < 40; ++i) {
    manifest_->Add(Info(absl::StrCat("d", i), 1000, 60'000));
  }
  manifest_->Add(Info("of another", 1001));
  EXPECT_THAT(manifest_->Entries(),
              SizeIs(kMaxManifestBytesOfUser / 60'100 + 1));
  EXPECT_THAT(events_.back(),
              ::testing::AllOf(HasSubstr("'d39' of uid 1000"),
                               HasSubstr("this user's datasets"),
                               HasSubstr("1048576")));
  // There is room again when one goes.
  manifest_->Remove("d10", 1000);
  events_.clear();
  manifest_->Add(Info("d39", 1000, 60'000));
  EXPECT_THAT(events_, IsEmpty());
  // One that does not fit any more leaves nothing of what it was.
  manifest_->Add(Info("d40", 1000));
  manifest_->Add(Info("d40", 1000, 60'000));
  EXPECT_THAT(Names(), ::testing::Not(::testing::Contains("d40")));
}

// The previous version stored such hashes, by XXH3.
TEST(ManifestFormatTest, ShortContentHashesAreTaken) {
  for (const size_t length : {0, 31, 32, 33, 64, 65}) {
    v1::Manifest manifest;
    auto* const entry = manifest.add_entries();
    entry->mutable_spec()->set_name("a");
    entry->set_content_hash(std::string(length, '0'));
    const auto decoded = DecodeManifest(EncodeManifest(manifest));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->damage.ok(), length == 32 || length == 64);
    EXPECT_EQ(decoded->manifest.entries_size(), decoded->damage.ok() ? 1 : 0);
  }
}

TEST(ManifestFormatTest, NamesThatAreNoneAndDoubledOnesAreRefused) {
  for (const std::string name : {"", "../a", "a b", "a"}) {
    v1::Manifest manifest;
    for (int i = 0; i < 2; ++i) {
      auto* const entry = manifest.add_entries();
      entry->mutable_spec()->set_name(name);
      entry->set_content_hash(std::string(64, '0'));
    }
    const auto decoded = DecodeManifest(EncodeManifest(manifest));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_THAT(decoded->damage,
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("name")));
    EXPECT_EQ(decoded->manifest.entries_size(), name == "a" ? 1 : 0);
  }
}

TEST_F(DatasetManifestTest, AFullDiskAfterACrashKeepsNothingFromStarting) {
  manifest_->Add(Info("a", 1000));
  manifest_.reset();
  std::ofstream(path_ + "/restoring", std::ios::binary)
      << "datasetd restoring 1\na";
  testing::FaultPlan plan(testing::kFaultWrite, 1);
  auto directory = OpenStoreDirectory(path_);
  ASSERT_THAT(directory, IsOk());
  auto manifest = DatasetManifest::Open(
      std::make_unique<testing::FaultyStoreDirectory>(*std::move(directory),
                                                      &plan),
      [this](const char* event, const absl::Status& status) {
        events_.push_back(absl::StrCat(event, ": ", status.message()));
      });
  ASSERT_THAT(manifest, IsOk());
  EXPECT_TRUE((*manifest)->Entries()[0].is_suspect());
  EXPECT_EQ((*manifest)->Entries()[0].num_interrupted(), 1u);
  EXPECT_THAT(events_, ElementsAre(HasSubstr("was restoring when it ended: a"),
                                   HasSubstr("not written: injected fault")));
}

}  // namespace
}  // namespace datasetd
