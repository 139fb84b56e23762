// Draws of different ops, samples and epochs have nothing to do with each
// other: kNumSamples samples of every op that draws, with a fixed seed.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/normal.h"
#include "gtest/gtest.h"
#include "tests/server/feed/explained_feed.h"
#include "tests/testing/distribution.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

// An op, and a number that it draws: continuous, or nearly.
struct Continuous {
  v1::Transform op;
  std::string parameter;
};

std::map<std::string, Continuous> ContinuousOps() {
  std::map<std::string, Continuous> ops;
  for (const Continuous& op : std::vector<Continuous>{
           {Op("random_affine { degrees { min: -10 max: 50 } }"), "angle"},
           {Op("color_jitter { brightness { min: 0.6 max: 1.4 } }"),
            "brightness_factor"},
           {Op("gaussian_blur { kernel_size { height: 3 width: 3 } }"),
            "sigma"},
           {Op("random_erasing { p: 1 }"), "height"},
           {Op("random_resized_crop { size { height: $0 width: $0 } }", kSide),
            "height"},
           {Op("random_rotation { degrees { min: -30 max: 20 } }"), "angle"},
           {Op("random_perspective { p: 1 }"), "endpoints"},
           {Op("cutout { size: 9 }"), "top"},
           {Op("random_crop { height: $0 width: $0 padding { top: $0 bottom: "
               "$0 } }",
               kSide),
            "top"}}) {
    ops.emplace(TransformName(op.op), op);
  }
  return ops;
}

// The same of ops on sequences.
std::map<std::string, Continuous> ContinuousSequenceOps() {
  return {{"AddNoise", {Op("add_noise {}"), "snr"}},
          {"Gain", {Op("gain { p: 1 }"), "gain_in_db"}},
          {"Shift", {Op("shift { p: 1 }"), "shift"}},
          {"TimeMasking",
           {Op("time_masking { time_mask_param: 100 }"), "mask_start"}},
          {"FrequencyMasking",
           {Op("frequency_masking { freq_mask_param: 100 }"), "mask_start"}}};
}

// Ops that are applied half of the time, by name.
std::map<std::string, v1::Transform> EvenGates() {
  std::map<std::string, v1::Transform> gates = Gates(0.5);
  gates.emplace("AlternatingFlip", Op("alternating_flip {}"));
  return gates;
}

using Values = std::vector<double>;

Values Shifted(Values values) {
  values.push_back(values.front());
  values.erase(values.begin());
  return values;
}

void CheckContinuous(const Continuous& op) {
  const ExplainedFeed feed(kSide, kSide, {op.op, op.op});
  const Values values = feed.Collect(0, op.parameter);
  EXPECT_LT(IndependenceZ(values, feed.Collect(1, op.parameter)), kMaxZ)
      << "of two places";
  EXPECT_LT(IndependenceZ(values, feed.Collect(0, op.parameter, 0, 2)), kMaxZ)
      << "of epochs";
  EXPECT_LT(IndependenceZ(values, Shifted(values)), kMaxZ) << "of samples";
}

void CheckGate(const v1::Transform& op) {
  const ExplainedFeed feed(16, 16, {op, op});
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  const std::vector<bool>& values = applied.at(0);
  EXPECT_LT(std::fabs(BothZ(values, applied.at(1), 0.5)), kMaxZ)
      << "of two places";
  std::vector<bool> next(values.begin() + 1, values.end());
  next.push_back(values[0]);
  EXPECT_LT(std::fabs(BothZ(values, next, 0.5)), kMaxZ) << "of samples";
  // An AlternatingFlip is the same in every second epoch.
  if (TransformName(op) == std::string("AlternatingFlip")) return;
  EXPECT_LT(std::fabs(BothZ(values, feed.Applied(2).at(0), 0.5)), kMaxZ)
      << "of epochs";
}

// A RandomApply's gate, told by an Invert.
void CheckGroup() {
  const v1::Transform group = Op("random_apply { transforms { invert {} } }");
  const ExplainedFeed feed(16, 16, {group, group});
  // Positions 0 and 2 are the groups themselves.
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  const std::vector<bool>& values = applied.at(1);
  EXPECT_LT(std::fabs(BothZ(values, applied.at(3), 0.5)), kMaxZ);
  EXPECT_LT(std::fabs(BothZ(values, feed.Applied(2).at(1), 0.5)), kMaxZ);
  std::vector<bool> next(values.begin() + 1, values.end());
  next.push_back(values[0]);
  EXPECT_LT(std::fabs(BothZ(values, next, 0.5)), kMaxZ);
}

// Lambdas of row `row` of each batch; of MixUp, whose lambda no box changes,
// or of CutMix the left edge of the box, if it has one, else the right.
Values MixesOf(const MixProgram& mix, uint64_t epoch, int32_t row) {
  Values values;
  for (uint32_t i = 0; i < kNumSamples; ++i) {
    const BatchTask batch = {
        .num_samples = 4, .batch_index = i, .epoch = epoch};
    const MixDraw draw = DrawMix(mix, 20, batch, row, kSide, kSide);
    values.push_back(mix.kind == MixKind::kMixUp
                         ? draw.lambda
                         : draw.left + draw.right + 0.1 * draw.top);
  }
  return values;
}

void CheckMix(const v1::Transform& op) {
  const ExplainedFeed feed(16, 16, {op});
  const ExplainedFeed later(16, 16, {Op("random_invert {}"), op});
  const MixProgram& mix = feed.program().fields[0].mix;
  ASSERT_TRUE(mix.per_sample);
  const Values values = MixesOf(mix, 1, 0);
  EXPECT_LT(IndependenceZ(values, MixesOf(later.program().fields[0].mix, 1, 0)),
            kMaxZ)
      << "of two places";
  EXPECT_LT(IndependenceZ(values, MixesOf(mix, 2, 0)), kMaxZ) << "of epochs";
  EXPECT_LT(IndependenceZ(values, MixesOf(mix, 1, 1)), kMaxZ) << "of rows";
  EXPECT_LT(IndependenceZ(values, Shifted(values)), kMaxZ) << "of batches";
}

// The op and sign that a policy draws first, as numbers.
Values PolicyValues(const v1::Transform& op, int place, uint64_t epoch) {
  Transforms ops(static_cast<size_t>(place), Op("invert {}"));
  ops.push_back(op);
  const ExplainedFeed feed(kPolicySide, kPolicySide, ops);
  Values values;
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    std::vector<OpDraw> draws = feed.At(epoch, sample);
    draws.erase(draws.begin(), draws.begin() + place);
    values.push_back(PolicyNumber(draws));
  }
  return values;
}

// Pearson's chi-square of the table of two discrete draws, as IndependenceZ.
double TableZ(const Values& a, const Values& b) {
  const auto cell = [](double value) { return std::lround(value); };
  std::map<int64_t, double> rows;
  std::map<int64_t, double> columns;
  std::map<std::pair<int64_t, int64_t>, double> table;
  for (size_t i = 0; i < a.size(); ++i) {
    ++rows[cell(a[i])];
    ++columns[cell(b[i])];
    ++table[{cell(a[i]), cell(b[i])}];
  }
  double square = 0;
  for (const auto& [row, in_row] : rows) {
    for (const auto& [column, in_column] : columns) {
      const double expected =
          in_row * in_column / static_cast<double>(a.size());
      const double found = table[{row, column}];
      square += (found - expected) * (found - expected) / expected;
    }
  }
  const auto freedom =
      static_cast<double>((rows.size() - 1) * (columns.size() - 1));
  return (square - freedom) / std::sqrt(2 * freedom);
}

void CheckPolicy(const v1::Transform& op) {
  const Values values = PolicyValues(op, 0, 1);
  EXPECT_LT(TableZ(values, PolicyValues(op, 1, 1)), kMaxZ) << "of two places";
  EXPECT_LT(TableZ(values, PolicyValues(op, 0, 2)), kMaxZ) << "of epochs";
  EXPECT_LT(TableZ(values, Shifted(values)), kMaxZ) << "of samples";
}

// The noise of one pixel, channel by channel, and of its neighbour.
void CheckNoise() {
  const auto values = [](uint64_t epoch, uint32_t op_index, int x) {
    Values drawn;
    for (int64_t sample = 0; sample < kNumSamples; ++sample) {
      float normal[kMaxChannels];
      DrawNormalPixel({20, epoch, sample, op_index}, 3, x, 16, normal);
      drawn.push_back(normal[0]);
    }
    return drawn;
  };
  const Values first = values(1, 0, 4);
  EXPECT_LT(IndependenceZ(first, values(1, 1, 4)), kMaxZ) << "of two places";
  EXPECT_LT(IndependenceZ(first, values(2, 0, 4)), kMaxZ) << "of epochs";
  EXPECT_LT(IndependenceZ(first, values(1, 0, 5)), kMaxZ) << "of pixels";
  EXPECT_LT(IndependenceZ(first, Shifted(first)), kMaxZ) << "of samples";
}

class IndependenceOf : public ::testing::TestWithParam<std::string> {};

TEST_P(IndependenceOf, PlacesEpochsAndSamples) {
  const std::string& name = GetParam();
  const auto continuous = ContinuousOps();
  const auto sequences = ContinuousSequenceOps();
  const auto gates = EvenGates();
  if (continuous.count(name) == 1) {
    CheckContinuous(continuous.at(name));
  } else if (sequences.count(name) == 1) {
    CheckContinuous(sequences.at(name));
  } else if (name == "PolarityInversion") {
    CheckGate(Op("polarity_inversion {}"));
  } else if (gates.count(name) == 1) {
    CheckGate(gates.at(name));
  } else if (name == "RandomApply") {
    CheckGroup();
  } else if (name == "RandAugment") {
    CheckPolicy(Op("rand_augment { num_ops: 1 }"));
  } else if (name == "TrivialAugmentWide") {
    CheckPolicy(Op("trivial_augment_wide {}"));
  } else if (name == "AutoAugment") {
    CheckPolicy(Op("auto_augment {}"));
  } else if (name == "GaussianNoise") {
    CheckNoise();
  } else if (name == "MixUp") {
    CheckMix(Op("mix_up { num_classes: 2 per_sample: true }"));
  } else if (name == "CutMix") {
    CheckMix(Op("cut_mix { num_classes: 2 per_sample: true }"));
  } else {
    FAIL() << name << " draws, and nothing checks of what it is independent";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRandomOp, IndependenceOf,
                         ::testing::ValuesIn(RandomOps()),
                         [](const auto& info) { return info.param; });

TEST(IndependenceTest, DifferentOpsOfOnePipeline) {
  Transforms ops;
  std::vector<std::string> parameters;
  for (const auto& [name, op] : ContinuousOps()) {
    ops.push_back(op.op);
    parameters.push_back(op.parameter);
  }
  const ExplainedFeed feed(kSide, kSide, ops);
  const std::vector<Values> drawn = feed.CollectAll(parameters);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_LT(IndependenceZ(drawn[i], drawn[j]), kMaxZ)
          << TransformName(ops[i]) << ", " << TransformName(ops[j]);
    }
  }
}

TEST(IndependenceTest, DifferentGatesOfOnePipeline) {
  Transforms ops;
  for (const auto& [name, op] : EvenGates()) ops.push_back(op);
  const ExplainedFeed feed(16, 16, ops);
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  ASSERT_EQ(applied.size(), ops.size());
  for (const auto& [op, samples] : applied) {
    for (int other = 0; other < op; ++other) {
      EXPECT_LT(std::fabs(BothZ(samples, applied.at(other), 0.5)), kMaxZ)
          << TransformName(ops[op]) << ", " << TransformName(ops[other]);
    }
  }
}

}  // namespace
}  // namespace datasetd
