#include "server/registry/scan_list.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};

DatasetSpec Spec(const std::string& name) {
  DatasetSpec spec;
  spec.name = name;
  return spec;
}

TEST(ScanListTest, AScanIsListedWhileItLasts) {
  ScanList list;
  const auto scan = std::make_shared<SourceScan>();
  {
    auto first = list.Add(Spec("a"), kAlice, scan, absl::Seconds(5));
    ASSERT_THAT(first, IsOk());
    const ScanList::Listing moved = *std::move(first);
    const auto second = list.Add(
        Spec("b"), kBob, std::make_shared<SourceScan>(), absl::Seconds(6));
    ASSERT_THAT(second, IsOk());
    scan->num_entries = 12;
    const auto infos = list.Describe(absl::Seconds(8));
    ASSERT_THAT(infos, SizeIs(2));
    EXPECT_EQ(infos[0].spec.name, "a");
    EXPECT_EQ(infos[0].state, DatasetState::kLoading);
    EXPECT_TRUE(infos[0].is_scanning);
    EXPECT_EQ(infos[0].num_entries_scanned, 12);
    EXPECT_EQ(infos[0].owner.uid, kAlice.uid);
    EXPECT_EQ(infos[0].elapsed, absl::Seconds(3));
    EXPECT_EQ(infos[1].spec.name, "b");
  }
  EXPECT_THAT(list.Describe(absl::Seconds(9)), IsEmpty());
}

TEST(ScanListTest, ASessionsScansAreCancelledWithIt) {
  ScanList list;
  const auto of_alice = std::make_shared<SourceScan>();
  const auto of_bob = std::make_shared<SourceScan>();
  const auto first = list.Add(Spec("a"), kAlice, of_alice, {});
  const auto second = list.Add(Spec("b"), kBob, of_bob, {});
  list.CancelSession(kAlice.session_id);
  EXPECT_TRUE(of_alice->is_cancelled);
  EXPECT_FALSE(of_bob->is_cancelled);
}

TEST(ScanListTest, AtTheEndAllAreCancelledAndNoneBegins) {
  ScanList list;
  const auto scan = std::make_shared<SourceScan>();
  const auto listing = list.Add(Spec("a"), kAlice, scan, {});
  list.CancelAll();
  EXPECT_TRUE(scan->is_cancelled);
  EXPECT_THAT(
      list.Add(Spec("b"), kBob, scan, {}),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

}  // namespace
}  // namespace datasetd
