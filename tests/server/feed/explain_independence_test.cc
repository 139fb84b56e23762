// Draws of different ops, samples and epochs have nothing to do with each
// other: 100,000 samples of every op that draws, with a fixed seed.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/kernels/ops/mix.h"
#include "gtest/gtest.h"
#include "tests/server/feed/explained_feed.h"
#include "tests/testing/distribution.h"

namespace datasetd {
namespace {

// An op, and a number that it draws: continuous, or nearly.
struct Continuous {
  TransformSpec op;
  std::string parameter;
};

std::map<std::string, Continuous> ContinuousOps() {
  RandomAffineSpec affine;
  affine.degrees = {-10, 50};
  ColorJitterSpec jitter;
  jitter.brightness = {.min = 0.6, .max = 1.4};
  GaussianBlurSpec blur;
  blur.kernel_height = blur.kernel_width = 3;
  RandomErasingSpec erasing;
  erasing.p = 1.0;
  RandomResizedCropSpec resized;
  resized.height = resized.width = kSide;
  std::map<std::string, Continuous> ops;
  for (const Continuous& op : std::vector<Continuous>{
           {affine, "angle"},
           {jitter, "brightness_factor"},
           {blur, "sigma"},
           {erasing, "height"},
           {resized, "height"},
           {RandomRotationSpec{.degrees = {-30, 20}}, "angle"},
           {CutoutSpec{.size = 9}, "top"},
           {RandomCropSpec{.height = kSide,
           .width = kSide,
           .padding = {.top = kSide, .bottom = kSide}},
            "top"}}) {
    ops.emplace(TransformName(op.op), op);
  }
  return ops;
}

// What is applied or not, half of the time.
std::map<std::string, TransformSpec> Gates() {
  std::map<std::string, TransformSpec> gates;
  for (const TransformSpec& op : std::vector<TransformSpec>{
           RandomHorizontalFlipSpec{}, RandomVerticalFlipSpec{},
           AlternatingFlipSpec{}, RandomGrayscaleSpec{.p = 0.5},
           RandomInvertSpec{}, RandomPosterizeSpec{.bits = 3},
           RandomSolarizeSpec{.threshold = 9},
           RandomAdjustSharpnessSpec{.sharpness_factor = 2},
           RandomAutocontrastSpec{}, RandomEqualizeSpec{}}) {
    gates.emplace(TransformName(op), op);
  }
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

void CheckGate(const TransformSpec& op) {
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
  RandomApplySpec group;
  group.transforms = {InvertSpec{}};
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

void CheckMix(const TransformSpec& op) {
  const ExplainedFeed feed(16, 16, {op});
  const ExplainedFeed later(16, 16, {RandomInvertSpec{}, op});
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

class IndependenceOf : public ::testing::TestWithParam<std::string> {};

TEST_P(IndependenceOf, PlacesEpochsAndSamples) {
  const std::string& name = GetParam();
  const auto continuous = ContinuousOps();
  const auto gates = Gates();
  if (continuous.count(name) == 1) {
    CheckContinuous(continuous.at(name));
  } else if (gates.count(name) == 1) {
    CheckGate(gates.at(name));
  } else if (name == "RandomApply") {
    CheckGroup();
  } else if (name == "MixUp") {
    CheckMix(MixUpSpec{.num_classes = 2, .per_sample = true});
  } else if (name == "CutMix") {
    CheckMix(CutMixSpec{.num_classes = 2, .per_sample = true});
  } else {
    FAIL() << name << " draws, and nothing checks of what it is independent";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRandomOp, IndependenceOf,
                         ::testing::ValuesIn(RandomOps()),
                         [](const auto& info) { return info.param; });

TEST(IndependenceTest, DifferentOpsOfOnePipeline) {
  std::vector<TransformSpec> ops;
  std::vector<std::string> parameters;
  for (const auto& [name, op] : ContinuousOps()) {
    ops.push_back(op.op);
    parameters.push_back(op.parameter);
  }
  const ExplainedFeed feed(kSide, kSide, ops);
  std::vector<Values> drawn;
  for (size_t i = 0; i < ops.size(); ++i) {
    drawn.push_back(feed.Collect(static_cast<int>(i), parameters[i]));
    for (size_t j = 0; j < i; ++j) {
      EXPECT_LT(IndependenceZ(drawn[i], drawn[j]), kMaxZ)
          << TransformName(ops[i]) << ", " << TransformName(ops[j]);
    }
  }
}

TEST(IndependenceTest, DifferentGatesOfOnePipeline) {
  std::vector<TransformSpec> ops;
  for (const auto& [name, op] : Gates()) ops.push_back(op);
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
