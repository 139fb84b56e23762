#include "server/order/group_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/kernels/math/permutation.h"
#include "cuda/kernels/math/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Classes = std::vector<int32_t>;
using Samples = std::vector<int64_t>;

GroupTable TableOf(const Classes& classes, int64_t group_size) {
  GroupTable table({.num_samples = static_cast<int64_t>(classes.size()),
                    .group_size = group_size});
  EXPECT_THAT(table.Append(classes), IsOk());
  EXPECT_THAT(table.Finish(), IsOk());
  return table;
}

Samples Draws(const GroupTable& table, int64_t num_rows, uint64_t epoch,
              uint64_t seed = 7) {
  Samples samples(static_cast<size_t>(num_rows));
  table.Draw(seed, epoch, 0, 1, 0, absl::MakeSpan(samples));
  return samples;
}

// Sample i has one of `num_classes` classes, or none.
Classes SomeClasses(int num_samples, int num_classes) {
  Classes classes;
  for (int i = 0; i < num_samples; ++i) {
    classes.push_back((i * i + i / 3) % (num_classes + 1) - 1);
  }
  return classes;
}

// The order, made pass by pass.
class Reference {
 public:
  Reference(const Classes& classes, size_t group_size, uint64_t seed,
            uint64_t epoch)
      : group_size_(group_size), seed_(seed), epoch_(epoch) {
    std::map<int32_t, Samples> by_class;
    for (size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] >= 0) by_class[classes[i]].push_back(i);
    }
    for (const auto& [number, samples] : by_class) {
      classes_.push_back({.samples = samples});
    }
  }

  // The samples of the next pass over the classes.
  Samples NextPass() {
    const Words4 words = Key(0xFFFF0003, 0);
    std::vector<uint32_t> order = Order(Join(words, 0), 0, classes_.size());
    Samples result;
    for (size_t part = 0; part < 4; ++part) {
      const size_t begin = part * classes_.size() / 4;
      const size_t end = (part + 1) * classes_.size() / 4;
      if (begin == end) continue;
      for (const uint32_t place :
           Order(Join(words, 2), 4 * pass_ + part, end - begin)) {
        AppendGroup(order[begin + place], result);
      }
    }
    ++pass_;
    return result;
  }

 private:
  struct Class {
    Samples samples;
    Samples left;  // of the present pass over the samples
    uint64_t num_passes = 0;
  };

  Words4 Key(uint32_t op_index, uint32_t draw) const {
    return Philox4x32({{draw, op_index, static_cast<uint32_t>(epoch_),
                        static_cast<uint32_t>(epoch_ >> 32)}},
                      seed_);
  }
  static uint64_t Join(const Words4& words, int i) {
    return words.word[i] | uint64_t{words.word[i + 1]} << 32;
  }
  static std::vector<uint32_t> Order(uint64_t key, uint64_t pass, size_t size) {
    const FeistelPermutation<16> permutation(key, pass, size);
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < size; ++i) order.push_back(permutation(i));
    return order;
  }

  void AppendGroup(uint32_t number, Samples& result) {
    Class& of = classes_[number];
    if (of.left.size() < group_size_) {
      of.left.clear();
      for (const uint32_t place : Order(Join(Key(0xFFFF0004, number), 0),
                                        of.num_passes, of.samples.size())) {
        of.left.push_back(of.samples[place]);
      }
      ++of.num_passes;
      for (size_t i = 0; of.left.size() < group_size_; ++i) {
        of.left.push_back(of.left[i]);
      }
    }
    std::copy_n(of.left.begin(), group_size_, std::back_inserter(result));
    of.left.erase(of.left.begin(), of.left.begin() + group_size_);
  }

  const size_t group_size_;
  const uint64_t seed_;
  const uint64_t epoch_;
  std::vector<Class> classes_;
  uint64_t pass_ = 0;
};

TEST(GroupTableTest, DrawsWhatPassesGive) {
  for (const int num_classes : {1, 2, 3, 4, 5, 7, 10, 33}) {
    for (const int64_t group_size : {1, 2, 4, 9}) {
      const Classes classes = SomeClasses(150, num_classes);
      const GroupTable table = TableOf(classes, group_size);
      for (const uint64_t epoch :
           {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
        Reference reference(classes, group_size, 7, epoch);
        Samples expected;
        for (int pass = 0; pass < 6; ++pass) {
          const Samples more = reference.NextPass();
          expected.insert(expected.end(), more.begin(), more.end());
        }
        EXPECT_EQ(Draws(table, expected.size(), epoch), expected)
            << num_classes << " classes, groups of " << group_size;
      }
    }
  }
}

TEST(GroupTableTest, AGroupIsAFunctionOfItsPosition) {
  const GroupTable table = TableOf(SomeClasses(200, 9), 3);
  const Samples whole = Draws(table, 300, 4);
  for (const uint64_t step : {1, 2, 5}) {
    for (const uint64_t first : {0, 1, 13}) {
      for (const uint64_t first_row : {0, 1, 2, 3, 7}) {
        Samples some(20);
        table.Draw(7, 4, first, step, first_row, absl::MakeSpan(some));
        for (size_t i = 0; i < some.size(); ++i) {
          const uint64_t row = first_row + i;
          EXPECT_EQ(some[i], whole[(first + row / 3 * step) * 3 + row % 3]);
        }
      }
    }
  }
  EXPECT_NE(Draws(table, 300, 5), whole);
  EXPECT_NE(Draws(table, 300, 4, 8), whole);
}

TEST(GroupTableTest, GroupsAreOfOneClassAndNeighboursOfOthers) {
  for (const int num_classes : {1, 2, 3, 6, 10, 17, 50}) {
    // Classes of 5 to 7 samples.
    Classes classes;
    for (int i = 0; i < 6 * num_classes; ++i)
      classes.push_back(i % num_classes);
    classes[0] = num_classes - 1;
    const GroupTable table = TableOf(classes, 5);
    const size_t num_distinct = num_classes - (num_classes + 3) / 4 + 1;
    const size_t num_groups = 8 * num_classes;
    const Samples samples = Draws(table, 5 * num_groups, 1);
    std::vector<int32_t> of_groups;
    for (size_t group = 0; group < num_groups; ++group) {
      const auto begin = samples.begin() + 5 * group;
      EXPECT_EQ(std::set<int64_t>(begin, begin + 5).size(), 5);
      of_groups.push_back(classes[*begin]);
      for (int i = 1; i < 5; ++i) {
        EXPECT_EQ(classes[begin[i]], of_groups.back());
      }
    }
    for (size_t i = 0; i + num_distinct <= num_groups; ++i) {
      const auto begin = of_groups.begin() + i;
      EXPECT_EQ(std::set<int32_t>(begin, begin + num_distinct).size(),
                num_distinct);
    }
  }
}

TEST(GroupTableTest, APassTakesEachSampleOnce) {
  // 3 classes of 8: an epoch of 6 groups of 4.
  Classes classes;
  for (int i = 0; i < 24; ++i) classes.push_back(i % 3);
  Samples samples = Draws(TableOf(classes, 4), 24, 3);
  std::sort(samples.begin(), samples.end());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(samples[i], i);
}

TEST(GroupTableTest, SmallClassesRepeatEvenly) {
  // 5 samples in groups of 12: each 2 or 3 times.
  const GroupTable table = TableOf({0, 0, 0, 0, 0, -1}, 12);
  const Samples samples = Draws(table, 12 * 30, 0);
  std::map<int64_t, int> in_all;
  for (size_t group = 0; group < 30; ++group) {
    std::map<int64_t, int> counts;
    for (int i = 0; i < 12; ++i) ++counts[samples[12 * group + i]];
    ASSERT_EQ(counts.size(), 5);
    for (const auto& [sample, count] : counts) {
      EXPECT_GE(count, 2);
      EXPECT_LE(count, 3);
      in_all[sample] += count;
    }
  }
  for (const auto& [sample, count] : in_all) EXPECT_NEAR(count, 72, 12);
}

TEST(GroupTableTest, PlacesAreUniform) {
  // Of 9 classes of 6 samples, what is drawn first in an epoch.
  Classes classes;
  for (int i = 0; i < 54; ++i) classes.push_back(i % 9);
  const GroupTable table = TableOf(classes, 2);
  constexpr int kEpochs = 54 * 400;
  std::vector<int> counts(54);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    ++counts[Draws(table, 1, epoch)[0]];
  }
  for (const int count : counts) EXPECT_NEAR(count, 400, 5 * std::sqrt(400));
}

TEST(GroupTableTest, TheLargestNumbers) {
  const GroupTable table = TableOf({0, 1, 1}, 2);
  Samples samples(6);
  table.Draw(~uint64_t{0}, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 1,
             absl::MakeSpan(samples));
  for (const int64_t sample : samples) {
    EXPECT_GE(sample, 0);
    EXPECT_LE(sample, 2);
  }
  EXPECT_THAT(Draws(TableOf({-5, 0}, 3), 9, 0), Each(1));
}

TEST(GroupTableTest, ClassesThatAreWrong) {
  GroupTable table({.num_samples = 4, .group_size = 2});
  EXPECT_THAT(table.Append({0, -1}), IsOk());
  EXPECT_THAT(table.Append({4}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("classes[2] is 4"),
                             HasSubstr("a number below 4"))));
  GroupTable without({.num_samples = 2, .group_size = 2});
  EXPECT_THAT(without.Append({-1, INT32_MIN}), IsOk());
  EXPECT_THAT(without.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("no sample has a class")));
}

}  // namespace
}  // namespace datasetd
