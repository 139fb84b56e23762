#include "server/dataset_manifest.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/manifest_format.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

DatasetInfo Info(const std::string& name, uint32_t uid) {
  v1::DatasetSpec spec;
  spec.set_name(name);
  spec.set_format("npy");
  spec.set_path("/data/" + name);
  spec.set_pin(true);
  DatasetInfo info;
  info.spec.name = name;
  info.spec.wire =
      std::make_shared<const std::string>(spec.SerializeAsString());
  info.owner.uid = uid;
  info.content_hash = std::string(32, 'a');
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
  EXPECT_EQ(entry.content_hash(), std::string(32, 'a'));
  manifest_->Remove("a");
  manifest_->Remove("c");
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
    EXPECT_EQ(decoded->entries_size(), i + 1);
  }
}

TEST_F(DatasetManifestTest, ADamagedOneIsSetAside) {
  manifest_->Add(Info("a", 1000));
  manifest_.reset();
  std::ofstream(file(), std::ios::app) << "x";
  Open();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(events_, ElementsAre(HasSubstr("damaged, set aside")));
  EXPECT_TRUE(std::filesystem::exists(file() + ".damaged"));
  manifest_->Add(Info("b", 1000));
  Open();
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(DatasetManifestTest, WhatCannotBeMadeAgainIsNotKept) {
  DatasetInfo info = Info("a", 0);
  info.spec.wire = nullptr;
  manifest_->Add(info);
  info.spec.wire =
      std::make_shared<const std::string>(std::string(2 << 20, 'a'));
  manifest_->Add(info);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DatasetManifestTest, AFileThatCannotBeWrittenIsAnEvent) {
  // A directory is in the way.
  std::filesystem::create_directory(file());
  manifest_->Add(Info("a", 0));
  ASSERT_TRUE(manifest_->AwaitWritten(absl::Seconds(60)));
  EXPECT_THAT(events_, SizeIs(1));
  EXPECT_EQ(manifest_->num_errors(), 1u);
  std::filesystem::remove(file());
  manifest_->Add(Info("b", 0));
  Open();
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
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
      auto manifest = DatasetManifest::Open(
          std::make_unique<testing::FaultyStoreDirectory>(
              *std::move(directory), &plan),
          [](const char*, const absl::Status&) {});
      if (manifest.ok()) {
        (*manifest)->Add(Info("b", 0));
      } else {
        EXPECT_THAT(manifest, StatusIs(absl::StatusCode::kDataLoss,
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
  EXPECT_EQ(num_old, 6);  // open, read; create, write, sync, rename
  EXPECT_EQ(num_new, 1);  // the round without a fault
}

TEST(ManifestFormatTest, EveryCutAndEveryChangedByteIsNoticed) {
  v1::Manifest manifest;
  auto* const entry = manifest.add_entries();
  entry->mutable_spec()->set_name("a");
  entry->set_content_hash(std::string(32, '0'));
  const std::string good = EncodeManifest(manifest);
  ASSERT_THAT(DecodeManifest(good), IsOk());
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_THAT(DecodeManifest(good.substr(0, i)),
                StatusIs(absl::StatusCode::kDataLoss));
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    EXPECT_THAT(DecodeManifest(bad), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST(ManifestFormatTest, NamesThatAreNoneAndDoubledOnesAreRefused) {
  for (const std::string name : {"", "../a", "a b", "a"}) {
    v1::Manifest manifest;
    for (int i = 0; i < 2; ++i) {
      auto* const entry = manifest.add_entries();
      entry->mutable_spec()->set_name(name);
      entry->set_content_hash(std::string(32, '0'));
    }
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("name")));
  }
}

}  // namespace
}  // namespace datasetd
