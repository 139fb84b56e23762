#include "base/unique_handle.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int>& Destroyed() {
  static auto* destroyed = new std::vector<int>;
  return *destroyed;
}

struct CountedTraits {
  using Handle = int;
  static constexpr Handle kNull = -1;
  static void Destroy(Handle handle) { Destroyed().push_back(handle); }
};
using Counted = UniqueHandle<CountedTraits>;

static_assert(!std::is_copy_constructible_v<Counted>);
static_assert(!std::is_copy_assignable_v<Counted>);
static_assert(std::is_nothrow_move_constructible_v<Counted>);
static_assert(sizeof(Counted) == sizeof(int));

class UniqueHandleTest : public ::testing::Test {
 protected:
  void SetUp() override { Destroyed().clear(); }
};

TEST_F(UniqueHandleTest, DestroysOnce) {
  {
    const Counted handle(7);
    EXPECT_TRUE(handle.has_value());
    EXPECT_EQ(handle.get(), 7);
  }
  EXPECT_THAT(Destroyed(), ElementsAre(7));
}

TEST_F(UniqueHandleTest, NullIsNotDestroyed) {
  {
    const Counted empty;
    const Counted null(-1);
    EXPECT_FALSE(empty.has_value());
    EXPECT_FALSE(null.has_value());
  }
  EXPECT_THAT(Destroyed(), IsEmpty());
}

TEST_F(UniqueHandleTest, ZeroIsAHandleWhereNullIsNot) {
  { const Counted handle(0); }
  EXPECT_THAT(Destroyed(), ElementsAre(0));
}

TEST_F(UniqueHandleTest, MovesAndLeavesNull) {
  {
    Counted from(1);
    Counted to(std::move(from));
    EXPECT_FALSE(from.has_value());  // NOLINT: moved-from is null
    EXPECT_EQ(to.get(), 1);
    Counted other(2);
    other = std::move(to);
    EXPECT_THAT(Destroyed(), ElementsAre(2));
    EXPECT_EQ(other.get(), 1);
  }
  EXPECT_THAT(Destroyed(), ElementsAre(2, 1));
}

TEST_F(UniqueHandleTest, SurvivesMoveToItself) {
  Counted handle(3);
  Counted& same = handle;
  handle = std::move(same);
  EXPECT_EQ(handle.get(), 3);
  EXPECT_THAT(Destroyed(), IsEmpty());
}

TEST_F(UniqueHandleTest, ReleasesAndResets) {
  Counted handle(4);
  EXPECT_EQ(handle.Release(), 4);
  EXPECT_FALSE(handle.has_value());
  handle.Reset(5);
  handle.Reset();
  EXPECT_THAT(Destroyed(), ElementsAre(5));
}

}  // namespace
}  // namespace datasetd
