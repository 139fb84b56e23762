#include "cuda/kernels/program/augment_plan.h"

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"

namespace datasetd {
namespace {

using testing::FieldBuilder;

TEST(DividerTest, DividesLikeTheOperator) {
  std::mt19937 engine(1);
  std::vector<uint32_t> divisors;
  for (uint32_t d = 1; d < 2000; ++d) divisors.push_back(d);
  for (int shift = 11; shift < 31; ++shift) {
    for (const int step : {-1, 0, 1}) divisors.push_back((1u << shift) + step);
  }
  divisors.push_back(INT32_MAX);
  for (int i = 0; i < 2000; ++i) divisors.push_back(1 + engine() % INT32_MAX);
  for (const uint32_t divisor : divisors) {
    const Divider divider = MakeDivider(divisor);
    std::vector<uint32_t> numbers = {0, 1, INT32_MAX, INT32_MAX - 1u};
    for (int i = 0; i < 50; ++i) {
      const uint32_t multiple = engine() % (INT32_MAX / divisor + 1) * divisor;
      numbers.push_back(multiple);
      if (multiple > 0) numbers.push_back(multiple - 1);
      numbers.push_back(engine() >> 1);
    }
    for (const uint32_t n : numbers) {
      ASSERT_EQ(divider.Divide(n), n / divisor) << n << " / " << divisor;
    }
  }
}

FieldPlan PlanOf(FieldBuilder builder) {
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] = builder.Build();
  AugmentPlan plan;
  EXPECT_TRUE(MakeAugmentPlan(nullptr, program, nullptr, 0, &plan));
  return plan.fields[0];
}

TEST(AugmentPlanTest, VectorsWhereLayoutAllows) {
  FieldBuilder cifar(32, 32, 3);
  FieldBuilder odd(31, 33, 3);
  EXPECT_EQ(PlanOf(cifar.Out(Dtype::kUint8, Layout::kNchw)).vector_positions,
            16);
  EXPECT_EQ(PlanOf(cifar.Out(Dtype::kFloat16, Layout::kNhwc)).vector_positions,
            8);
  EXPECT_EQ(PlanOf(cifar.Out(Dtype::kFloat32, Layout::kNchw)).vector_positions,
            4);
  EXPECT_EQ(PlanOf(odd.Out(Dtype::kFloat32, Layout::kNchw)).vector_positions,
            1);
}

TEST(AugmentPlanTest, RunsWherePixelsOfAVectorAreConsecutive) {
  const auto field = [](int width, int channels = 3) {
    return FieldBuilder(32, width, channels)
        .Out(Dtype::kFloat16, Layout::kNhwc);
  };
  EXPECT_TRUE(PlanOf(field(32)).has_runs);
  EXPECT_EQ(PlanOf(field(32)).padding_move, -1);
  EXPECT_TRUE(PlanOf(field(32, 1)).has_runs);
  EXPECT_FALSE(PlanOf(field(32, 4)).has_runs);
  EXPECT_FALSE(PlanOf(field(36)).has_runs);
  const FieldPlan padded = PlanOf(
      field(32).HorizontalFlip(0.5f).Pad(8, 8, 8, 8, PaddingMode::kConstant));
  EXPECT_TRUE(padded.has_runs);
  EXPECT_EQ(padded.padding_move, 1);
  for (const PaddingMode mode :
       {PaddingMode::kEdge, PaddingMode::kReflect, PaddingMode::kSymmetric}) {
    EXPECT_TRUE(PlanOf(field(32).Pad(8, 8, 8, 8, mode)).has_runs);
  }
  EXPECT_FALSE(PlanOf(field(32)
                          .Pad(4, 4, 4, 4, PaddingMode::kConstant)
                          .Pad(4, 4, 4, 4, PaddingMode::kConstant))
                   .has_runs);
}

TEST(AugmentPlanTest, CifarFillsAGpu) {
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] =
      FieldBuilder(32, 32, 3).Out(Dtype::kFloat32, Layout::kNchw).Build();
  BatchTask batch = {};
  batch.num_samples = 512;
  AugmentPlan plan;
  ASSERT_TRUE(MakeAugmentPlan(nullptr, program, &batch, 1, &plan));
  EXPECT_EQ(plan.num_blocks(), 256u);
  EXPECT_TRUE(plan.fields[0].has_runs);
}

TEST(AugmentPlanTest, LargeLaunchesHaveLargerBlocks) {
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] =
      FieldBuilder(224, 224, 3).Out(Dtype::kFloat16, Layout::kNhwc).Build();
  BatchTask batch = {};
  AugmentPlan plan;
  for (const auto& [num_samples, pixels] :
       std::vector<std::pair<int32_t, int32_t>>{
           {8, 2048}, {34, 2048}, {36, 4096}, {256, 8192}, {4096, 8192}}) {
    batch.num_samples = num_samples;
    ASSERT_TRUE(MakeAugmentPlan(nullptr, program, &batch, 1, &plan));
    EXPECT_EQ(plan.fields[0].positions_per_block, 3 * pixels) << num_samples;
  }
  // Every thread writes as many vectors of MNIST's rows, of which a block may
  // have so many.
  program.fields[0] =
      FieldBuilder(28, 28, 1).Out(Dtype::kFloat32, Layout::kNchw).Build();
  batch.num_samples = 1 << 20;
  ASSERT_TRUE(MakeAugmentPlan(nullptr, program, &batch, 1, &plan));
  EXPECT_EQ(plan.fields[0].positions_per_block, 6 * kBlockThreads * 4);
}

TEST(AugmentPlanTest, RefusesWhatDoesNotFitOneLaunch) {
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] = FieldBuilder(4096, 4096, 4).Build();
  std::vector<BatchTask> batches(kMaxBatchesPerLaunch + 1);
  AugmentPlan plan;
  EXPECT_FALSE(MakeAugmentPlan(nullptr, program, batches.data(),
                               kMaxBatchesPerLaunch + 1, &plan));
  EXPECT_FALSE(MakeAugmentPlan(nullptr, program, batches.data(), -1, &plan));
  for (BatchTask& batch : batches) batch.num_samples = 1 << 20;
  EXPECT_FALSE(MakeAugmentPlan(nullptr, program, batches.data(),
                               kMaxBatchesPerLaunch, &plan));
}

// A RandomResizedCrop to 224 x 224 on an H100, whose places are 264.
class ChainPlanTest : public ::testing::Test {
 protected:
  ChainPlanTest() {
    program_.num_fields = 1;
    program_.num_teams = 264;
    field().num_steps = field().num_passes = 1;
    field().out_height = 224;
    field().operations = 4 * kMinStripOperations;
  }

  FieldProgram& field() { return program_.fields[0]; }

  // Returns the blocks of a launch; sets `strips`.
  int64_t Blocks(int32_t num_samples, int32_t* strips) const {
    const BatchTask batch = {.num_samples = num_samples};
    ChainPlan plan;
    const int64_t blocks = MakeChainPlan(nullptr, program_, &batch, 1, &plan);
    *strips = plan.num_strips[0];
    return blocks;
  }

  AugmentProgram program_ = {};
};

TEST_F(ChainPlanTest, FewSamplesAreSharedByMorePlaces) {
  struct Launch {
    int32_t samples, strips;
    int64_t blocks;
  };
  for (const auto& [samples, expected, blocks] :
       {Launch{0, 0, 0}, Launch{1, 4, 4}, Launch{32, 4, 128},
        Launch{64, 4, 256}, Launch{128, 2, 256}, Launch{200, 1, 200},
        Launch{256, 1, 256}, Launch{1024, 1, 264}}) {
    int32_t strips;
    EXPECT_EQ(Blocks(samples, &strips), blocks) << samples;
    EXPECT_EQ(strips, expected) << samples;
  }
}

TEST_F(ChainPlanTest, CheapSamplesAreNotShared) {
  field().operations = 2 * kMinStripOperations - 1;
  int32_t strips;
  EXPECT_EQ(Blocks(32, &strips), 32);
  EXPECT_EQ(strips, 1);
}

TEST_F(ChainPlanTest, SamplesOfSeveralPassesAreNotShared) {
  field().num_passes = 2;
  int32_t strips;
  EXPECT_EQ(Blocks(32, &strips), 32);
  // Such an affine map needs no pass before it, but a mix does.
  field().in_dtype = Dtype::kUint8;
  field().channels = 3;
  field().passes[1].source = PassSource::kWarp;
  EXPECT_EQ(Blocks(32, &strips), 128);
  field().mix.kind = MixKind::kCutMix;
  EXPECT_EQ(Blocks(32, &strips), 32);
  field().num_passes = 1;
  EXPECT_EQ(Blocks(32, &strips), 128);
}

TEST_F(ChainPlanTest, NoStripIsEmpty) {
  field().operations = 1000 * kMinStripOperations;
  for (int32_t height = 1; height < 300; ++height) {
    field().out_height = height;
    for (int32_t samples = 1; samples < 264; ++samples) {
      int32_t strips;
      EXPECT_LE(Blocks(samples, &strips), 264);
      const int32_t rows = (height + strips - 1) / strips;
      ASSERT_LT((strips - 1) * rows, height) << height << " " << samples;
    }
  }
}

}  // namespace
}  // namespace datasetd
