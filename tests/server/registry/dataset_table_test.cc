#include "server/registry/dataset_table.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Caller kDaemon = {};
constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr Caller kRoot = {
    .session_id = 3, .uid = 0, .pid = 30, .is_privileged = true};

class DatasetTableTest : public ::testing::Test {
 protected:
  DatasetTable::EntryPtr Add(const std::string& name, Stage stage,
                             const Caller& owner = kAlice) {
    const auto entry = std::make_shared<DatasetEntry>();
    entry->spec = std::make_shared<v1::DatasetSpec>(NamedSpec(name));
    entry->memory.bytes_in = {{&cpu_, 100}};
    entry->owner = owner;
    entry->stage = stage;
    entry->state = StateOf(stage);
    entry->dataset.set_resident_bytes(100);
    table_.Add(entry);
    return entry;
  }
  DatasetTable::EntryPtr AddReady(const std::string& name, int last_used) {
    const auto entry = Add(name, Stage::kReady);
    entry->holds.last_used = absl::Seconds(last_used);
    return entry;
  }
  static void Set(DatasetEntry& entry, void (v1::DatasetSpec::*flag)(bool)) {
    auto spec = std::make_shared<v1::DatasetSpec>(*entry.spec);
    (*spec.*flag)(true);
    entry.spec = std::move(spec);
  }
  std::vector<std::string> TakeUnused(int64_t bytes,
                                      bool for_restored = false) {
    std::vector<std::string> names;
    for (const auto& entry : table_.TakeUnused(cpu_, bytes, for_restored)) {
      names.push_back(entry->spec->name());
    }
    return names;
  }

  // Told apart by their addresses alone.
  MemoryBudget cpu_{1000};
  MemoryBudget gpu_{1000};
  DatasetTable table_{3, 2};
};

TEST_F(DatasetTableTest, APrivateDatasetIsItsOwnersAndThePrivilegedOnes) {
  Set(*Add("a", Stage::kReady), &v1::DatasetSpec::set_private_);
  Add("b", Stage::kReady);
  EXPECT_THAT(table_.Find("a", kAlice), IsOk());
  EXPECT_THAT(table_.Find("a", kRoot), IsOk());
  EXPECT_THAT(table_.Find("a", kDaemon), IsOk());
  EXPECT_THAT(
      table_.Find("a", kBob),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("no dataset 'a'"), HasSubstr("there are: b"),
                     Not(HasSubstr("a, b")))));
  EXPECT_THAT(
      DatasetTable::NameTaken(*table_.Get("a"), kBob),
      StatusIs(absl::StatusCode::kAlreadyExists,
               AllOf(HasSubstr("'a' is taken"), Not(HasSubstr("spec id")))));
}

TEST_F(DatasetTableTest, ANameIsOnesUntilAnotherTakesIt) {
  const auto first = Add("a", Stage::kFailed);
  const auto second = Add("a", Stage::kReading);
  EXPECT_NE(first->id, second->id);
  EXPECT_EQ(table_.Get("a"), second);
  EXPECT_EQ(table_.GetById(first->id), nullptr);
  table_.Remove(*first);
  EXPECT_EQ(table_.GetById(second->id), second);
  table_.Remove(*second);
  EXPECT_THAT(table_.entries(), IsEmpty());
  EXPECT_THAT(table_.Find("a", kAlice),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("is none")));
}

TEST_F(DatasetTableTest, AUserHasALimitAndTheDaemonHasNone) {
  const auto first = Add("a", Stage::kReady);
  EXPECT_THAT(table_.CheckLimits(kAlice, nullptr), IsOk());
  Add("b", Stage::kFailed);
  EXPECT_THAT(table_.CheckLimits(kAlice, nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000 has loaded 2"),
                             HasSubstr("user_limits.max_datasets"))));
  // It would take the place of one of them.
  EXPECT_THAT(table_.CheckLimits(kAlice, first.get()), IsOk());
  EXPECT_THAT(table_.CheckLimits(kBob, nullptr), IsOk());
  EXPECT_THAT(
      table_.CheckLimits(Caller{.session_id = 0, .uid = kAlice.uid}, nullptr),
      IsOk());
}

TEST_F(DatasetTableTest, WhatIsUnusedGoesLeastRecentlyUsedFirst) {
  AddReady("new", 30);
  AddReady("old", 10);
  AddReady("middle", 20);
  EXPECT_THAT(TakeUnused(0), IsEmpty());
  EXPECT_THAT(TakeUnused(101), ElementsAre("old", "middle"));
  EXPECT_THAT(table_.entries(), SizeIs(1));
  EXPECT_THAT(TakeUnused(1000), ElementsAre("new"));
}

TEST_F(DatasetTableTest, WhatWasRestoredStaysForWhatIsRestoredUntilItIsUsed) {
  const auto entry = AddReady("a", 1);
  entry->restoring.is_restored = true;
  EXPECT_EQ(table_.UnusedBytes(cpu_, /*for_restored=*/true), 0);
  EXPECT_EQ(table_.UnusedBytes(cpu_, /*for_restored=*/false), 100);
  EXPECT_THAT(TakeUnused(1, /*for_restored=*/true), IsEmpty());
  entry->holds.was_used = true;
  EXPECT_THAT(TakeUnused(1, /*for_restored=*/true), ElementsAre("a"));
}

TEST_F(DatasetTableTest, WhatIsHeldUsedPinnedOrNotReadyStays) {
  AddReady("held", 1)->holds.sessions.insert(7);
  AddReady("used", 1)->holds.feeds[1000] = 1;
  Set(*AddReady("pinned", 1), &v1::DatasetSpec::set_pin);
  AddReady("elsewhere", 1)->memory.bytes_in = {{&gpu_, 100}};
  Add("loading", Stage::kReading);
  Add("failed", Stage::kFailed);
  Add("unloading", Stage::kUnloading);
  EXPECT_THAT(TakeUnused(1 << 20), IsEmpty());
  EXPECT_THAT(table_.entries(), SizeIs(7));
}

TEST_F(DatasetTableTest, TheLatest64FailuresAreRemembered) {
  Add("ready", Stage::kReady);
  for (int i = 0; i < 66; ++i) {
    // The first to finish has the last name.
    Add(absl::StrCat("f", 100 + i), Stage::kFailed)->finished =
        absl::Seconds(1000 - i);
  }
  table_.ForgetOldFailures();
  EXPECT_THAT(table_.entries(), SizeIs(65));
  EXPECT_NE(table_.Get("ready"), nullptr);
  EXPECT_NE(table_.Get("f163"), nullptr);
  EXPECT_EQ(table_.Get("f164"), nullptr);
  EXPECT_EQ(table_.Get("f165"), nullptr);
}

TEST_F(DatasetTableTest, AllUsersTogetherHaveALimit) {
  Add("a", Stage::kReady);
  Add("b", Stage::kReady, kBob);
  Add("of the daemon", Stage::kReady, kDaemon);
  EXPECT_THAT(table_.CheckLimits(kAlice, nullptr), IsOk());
  Add("c", Stage::kReady, kBob);
  EXPECT_THAT(table_.CheckLimits(kAlice, nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("there are 3 datasets"),
                             HasSubstr("raise max_datasets"))));
}

TEST_F(DatasetTableTest, OneUsersFailuresPushOutNobodyElses) {
  Add("of bob", Stage::kFailed, kBob);
  for (int i = 0; i < 100; ++i) {
    Add(absl::StrCat("f", i), Stage::kFailed)->finished = absl::Seconds(i + 1);
    table_.ForgetOldFailures();
  }
  EXPECT_NE(table_.Get("of bob"), nullptr);
  EXPECT_THAT(table_.entries(), SizeIs(65));
}

TEST_F(DatasetTableTest, AllReplicasGoTogether) {
  AddReady("both", 1)->memory.bytes_in = {{&cpu_, 100}, {&gpu_, 100}};
  AddReady("here", 2);
  EXPECT_EQ(table_.UnusedBytes(cpu_, false), 200);
  EXPECT_EQ(table_.UnusedBytes(gpu_, false), 100);
  EXPECT_THAT(table_.TakeUnused(gpu_, 1000, false), SizeIs(1));
  EXPECT_THAT(TakeUnused(1000), ElementsAre("here"));
}

TEST_F(DatasetTableTest, AnErrorNamesSomeDatasetsAndCountsTheRest) {
  for (int i = 10; i < 40; ++i) {
    Add(absl::StrCat("d", i), Stage::kReady);
  }
  EXPECT_THAT(
      table_.Find("a", kAlice),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("d29 and 10 more"), Not(HasSubstr("d30")))));
}

TEST_F(DatasetTableTest, WhatCouldGoIsKnownBeforeItGoes) {
  AddReady("a", 10);
  AddReady("b", 20);
  AddReady("held", 1)->holds.sessions.insert(7);
  EXPECT_EQ(table_.UnusedBytes(cpu_, false), 200);
  EXPECT_EQ(table_.UnusedBytes(gpu_, false), 0);
}

TEST_F(DatasetTableTest, ADatasetBesideItWithOtherClassesIsNamed) {
  const auto add = [&](const std::string& name, const std::string& path,
                       std::vector<std::string> classes,
                       const std::string& more = "",
                       const Caller& owner = kAlice) {
    const auto entry = Add(name, Stage::kReady, owner);
    v1::DatasetSpec spec = NamedSpec(name);
    spec.set_path(path);
    entry->spec =
        std::make_shared<v1::DatasetSpec>(testing::With(std::move(spec), more));
    entry->content.classes =
        std::make_shared<const std::vector<std::string>>(std::move(classes));
    return entry;
  };
  const auto train = add("train", "/data/d/train.csv", {"a", "b", "c"});
  const auto note_of = [&](const DatasetTable::EntryPtr& entry) {
    return table_.UnlikeSibling(*entry);
  };
  EXPECT_THAT(note_of(train), IsEmpty());
  const auto val = add("val", "/data/d/val.csv", {"a", "c"});
  EXPECT_THAT(note_of(val),
              AllOf(HasSubstr("dataset 'train', /data/d/train.csv, has other "
                              "classes"),
                    HasSubstr("classes='train'")));
  const struct {
    std::string path;
    std::vector<std::string> classes;
    std::string more;
  } others[] = {{"/data/d/x.csv", {"a", "b", "c"}, "format: 'x'"},
                {"/data/d/x.csv", {"d"}, ""},  // of something else
                {"/data/d/train.csv", {"a"}, ""},
                {"/data/e/x.csv", {"a"}, ""}};
  table_.Remove(*val);
  for (const auto& [path, classes, more] : others) {
    EXPECT_THAT(note_of(add("x", path, classes, more)), IsEmpty()) << path;
  }
  // By the split, too.
  EXPECT_THAT(note_of(add("x", "/data/d", {"a"}, "split: 'val'")),
              HasSubstr("'train'"));
  // Whoever sees the note sees the dataset that it names.
  Set(*train, &v1::DatasetSpec::set_private_);
  const auto open = add("x", "/data/d/x.csv", {"a"});
  EXPECT_THAT(note_of(open), IsEmpty());
  Set(*open, &v1::DatasetSpec::set_private_);
  EXPECT_THAT(note_of(open), HasSubstr("'train'"));
  EXPECT_THAT(note_of(add("y", "/data/d/y.csv", {"a"}, "private: true", kBob)),
              IsEmpty());
}

}  // namespace
}  // namespace datasetd
