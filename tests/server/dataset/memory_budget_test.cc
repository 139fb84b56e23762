#include "server/dataset/memory_budget.h"

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

static_assert(!std::is_copy_constructible_v<Reservation>);
static_assert(!std::is_copy_assignable_v<Reservation>);
static_assert(std::is_nothrow_move_constructible_v<Reservation>);

Reservation MustReserve(MemoryBudget& budget, MemoryKind kind, uid_t uid,
                        uint64_t size_bytes, const std::string& what = "x") {
  auto reservation = budget.Reserve(kind, uid, size_bytes, what);
  EXPECT_TRUE(reservation.ok()) << reservation.status();
  return reservation.ok() ? *std::move(reservation) : Reservation();
}

TEST(MemoryBudgetTest, GivesBackOnDestruction) {
  MemoryBudget budget(100);
  {
    const Reservation a = MustReserve(budget, MemoryKind::kDataset, 1, 60);
    EXPECT_EQ(budget.used_bytes(), 60u);
    EXPECT_EQ(budget.free_bytes(), 40u);
    const Reservation b = MustReserve(budget, MemoryKind::kSlab, 1, 40);
    EXPECT_EQ(budget.free_bytes(), 0u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.total_bytes(), 100u);
}

TEST(MemoryBudgetTest, ReservationMovesAndIsReleasedOnce) {
  MemoryBudget budget(100);
  Reservation a = MustReserve(budget, MemoryKind::kSlab, 1, 30);
  Reservation b = std::move(a);
  a.Release();  // NOLINT: moved-from is empty
  EXPECT_EQ(budget.used_bytes(), 30u);
  a = MustReserve(budget, MemoryKind::kSlab, 1, 50);
  EXPECT_EQ(budget.used_bytes(), 80u);
  a = std::move(b);  // gives the 50 back
  EXPECT_EQ(budget.used_bytes(), 30u);
  Reservation& alias = a;
  a = std::move(alias);
  EXPECT_EQ(budget.used_bytes(), 30u);
  a.Release();
  a.Release();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MemoryBudgetTest, TotalsByKindAndByUid) {
  MemoryBudget budget(1000, {.dataset_bytes = 300, .slab_bytes = 300});
  const Reservation a = MustReserve(budget, MemoryKind::kDataset, 1, 100);
  const Reservation b = MustReserve(budget, MemoryKind::kSlab, 1, 20);
  Reservation c = MustReserve(budget, MemoryKind::kSlab, 2, 3);
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kDataset), 100u);
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kSlab), 23u);
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kScratch), 0u);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kDataset, 1, {}), 200u);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kSlab, 1, {}), 280u);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kSlab, 2, {}), 297u);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kSlab, 3, {}), 300u);
  c.Release();
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kSlab), 20u);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kSlab, 2, {}), 300u);
}

TEST(MemoryBudgetTest, ErrorNamesTheLargestHolderFirst) {
  MemoryBudget budget(1000);
  const Reservation a = MustReserve(budget, MemoryKind::kSlab, 1, 5, "small");
  const Reservation b = MustReserve(budget, MemoryKind::kDataset, 2, 50, "big");
  EXPECT_THAT(budget.Reserve(MemoryKind::kSlab, 3, 1000, "more"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("held by big: 50 bytes of uid 2, small: 5 "
                                 "bytes of uid 1")));
}

TEST(MemoryBudgetTest, ErrorNamesBothNumbersTheHoldersAndWhatToDo) {
  MemoryBudget budget(4096);
  const Reservation a = MustReserve(budget, MemoryKind::kDataset, 1000, 3072,
                                    "dataset 'cifar10-train'");
  const Reservation b =
      MustReserve(budget, MemoryKind::kSlab, 1001, 24, "slab of feed 7");
  const absl::Status status =
      budget.Reserve(MemoryKind::kDataset, 1, 2048, "dataset 'mnist'").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "dataset 'mnist' needs 2.0 KiB (2048 bytes), and 1000 bytes of "
            "the memory budget of 4.0 KiB (4096 bytes) are free; the rest is "
            "held by dataset 'cifar10-train': 3.0 KiB (3072 bytes) of uid "
            "1000, slab of feed 7: 24 bytes of uid 1001. Unload a dataset, "
            "close a feed, use a smaller batch_size or prefetch, or raise "
            "memory_budget_mib in the daemon's configuration");
  EXPECT_EQ(budget.used_bytes(), 3096u);
}

TEST(MemoryBudgetTest, ErrorCountsTheHoldersItDoesNotName) {
  MemoryBudget budget(100);
  std::vector<Reservation> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(MustReserve(budget, MemoryKind::kSlab, 0, 10,
                              absl::StrCat("feed ", i)));
  }
  EXPECT_THAT(budget.Reserve(MemoryKind::kSlab, 0, 1, "one more"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("feed 3"), Not(HasSubstr("feed 4")),
                             HasSubstr("and 6 more: 60 bytes"))));
}

TEST(MemoryBudgetTest, ErrorSaysWhenItCanNeverFit) {
  MemoryBudget budget(100);
  EXPECT_THAT(budget.Reserve(MemoryKind::kScratch, 0, 101, "scratch"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("101 bytes"), HasSubstr("100 bytes"),
                             HasSubstr("larger than the whole budget"),
                             Not(HasSubstr("held by")))));
}

TEST(MemoryBudgetTest, DoesNotOverflow) {
  MemoryBudget budget(kMax);
  Reservation a = MustReserve(budget, MemoryKind::kDataset, 0, kMax - 1);
  EXPECT_EQ(budget.Reserve(MemoryKind::kDataset, 0, 2, "x").status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.Reserve(MemoryKind::kDataset, 0, kMax, "x").status().code(),
            absl::StatusCode::kResourceExhausted);
  const Reservation b = MustReserve(budget, MemoryKind::kDataset, 0, 1);
  EXPECT_EQ(budget.free_bytes(), 0u);
  const Reservation none = MustReserve(budget, MemoryKind::kDataset, 0, 0);
  EXPECT_EQ(budget.used_bytes(), kMax);
}

TEST(MemoryBudgetTest, ThreadsNeverExceedItAndLeaveNothing) {
  static constexpr uint64_t kTotal = 1000;
  MemoryBudget budget(kTotal, {.slab_bytes = kTotal});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget, t] {
      std::vector<Reservation> held;
      for (int i = 0; i < 2000; ++i) {
        auto reservation =
            budget.Reserve(MemoryKind::kSlab, t, 1 + i % 97, "slab");
        if (reservation.ok()) {
          held.push_back(*std::move(reservation));
        } else {
          EXPECT_EQ(reservation.status().code(),
                    absl::StatusCode::kResourceExhausted);
          held.clear();
        }
        EXPECT_LE(budget.used_bytes(), kTotal);
        EXPECT_LE(budget.FreeBytesFor(MemoryKind::kSlab, t, {}), kTotal);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kSlab), 0u);
}

TEST(MemoryBudgetTest, OneUserHasOnlySoMuchOfAKind) {
  MemoryBudget budget(1000, {.dataset_bytes = 300, .slab_bytes = 100});
  const auto first = budget.Reserve(MemoryKind::kDataset, 7, 200, "a");
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(budget.Reserve(MemoryKind::kDataset, 7, 101, "b"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("b needs 101 bytes"),
                             HasSubstr("uid 7 has 200 bytes of the 300 bytes"),
                             HasSubstr("user_limits.max_dataset_mib"))));
  EXPECT_THAT(budget.Reserve(MemoryKind::kSlab, 7, 101, "c"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("user_limits.max_slab_mib")));
  EXPECT_THAT(budget.Reserve(MemoryKind::kDataset, 7, 100, "b"), IsOk());
  EXPECT_THAT(budget.Reserve(MemoryKind::kScratch, 7, 500, "s"), IsOk());
  EXPECT_THAT(budget.Reserve(MemoryKind::kDataset, 8, 300, "d"), IsOk());
  EXPECT_THAT(
      budget.Reserve(MemoryKind::kDataset, 7, 500, "e", {.is_exempt = true}),
      IsOk());
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kDataset, 7, {}), 100);
}

TEST(MemoryBudgetTest, PrivateThingsAreNamedToTheirUserAndThePrivileged) {
  MemoryBudget budget(100);
  const auto secret = budget.Reserve(MemoryKind::kDataset, 7, 60,
                                     "dataset 'secret'", {.is_private = true});
  const auto known = budget.Reserve(MemoryKind::kSlab, 7, 40, "feed 3");
  ASSERT_THAT(secret, IsOk());
  ASSERT_THAT(known, IsOk());
  const auto refuse = [&](uid_t uid, bool is_privileged) {
    return budget
        .Reserve(MemoryKind::kDataset, uid, 1, "dataset 'b'",
                 {.is_privileged = is_privileged})
        .status();
  };
  EXPECT_THAT(refuse(8, false),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("feed 3: 40 bytes of uid 7"),
                             HasSubstr("and 1 more: 60 bytes"),
                             Not(HasSubstr("secret")))));
  for (const absl::Status& status : {refuse(7, false), refuse(0, true)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("'secret': 60 bytes of uid 7")));
  }
}

TEST(MemoryBudgetTest, ThePrivilegedHaveALimitOfTheirOwn) {
  MemoryBudget budget(1000, {.slab_bytes = PerUserLimit(500, 0)});
  const auto take = [&](bool is_privileged) {
    return budget.Reserve(MemoryKind::kSlab, 7, 501, "a",
                          {.is_privileged = is_privileged});
  };
  EXPECT_THAT(take(false), StatusIs(absl::StatusCode::kResourceExhausted,
                                    HasSubstr("max_slab_mib")));
  EXPECT_THAT(take(true), IsOk());
}

TEST(MemoryBudgetTest, WhatUsersShareIsInNobodysLimit) {
  MemoryBudget budget(1000, {.scratch_bytes = 300});
  const auto shared =
      budget.Reserve(MemoryKind::kScratch, 7, 400, "a", {.is_shared = true});
  ASSERT_THAT(shared, IsOk());
  EXPECT_EQ(budget.used_bytes_of_kind(MemoryKind::kScratch), 400);
  EXPECT_EQ(budget.FreeBytesFor(MemoryKind::kScratch, 7, {}), 300);
  const auto own = budget.Reserve(MemoryKind::kScratch, 7, 300, "b");
  ASSERT_THAT(own, IsOk());
  EXPECT_THAT(budget.Reserve(MemoryKind::kScratch, 7, 1, "c"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 7 has 300 bytes of the 300 bytes"),
                             HasSubstr("user_limits.max_scratch_mib"))));
}

TEST(MemoryBudgetTest, TheUsersLimitIsKnownWithoutMemory) {
  MemoryBudget budget(100, {.dataset_bytes = 300});
  EXPECT_THAT(budget.CheckUser(MemoryKind::kDataset, 7, 300, "a", {}), IsOk());
  EXPECT_THAT(budget.CheckUser(MemoryKind::kDataset, 7, 301, "a", {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_dataset_mib")));
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace datasetd
