// The passes of a field, and those of its samples.

#include "server/pipeline/ops/pass_planner.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cuda/kernels/chain/chain_pass.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/ops/draw_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;
using ::datasetd::testing::WithDrawId;
using ::testing::ElementsAre;
using testing::IsOk;

constexpr char kJitter[] =
    "color_jitter { brightness { min: 0.6 max: 1.4 } contrast { min: 0.6 max: "
    "1.4 } saturation { min: 0.6 max: 1.4 } hue { min: -0.1 max: 0.1 } }";
constexpr char kCrop[] =
    "random_resized_crop { size { height: 20 width: 20 } }";
constexpr char kToFloat[] = "to_dtype { dtype: DTYPE_FLOAT32 scale: true }";
constexpr char kBlur[] = "gaussian_blur { kernel_size { height: 5 width: 5 } }";

FieldProgram Compile(const Transforms& ops) {
  const FieldSpec image = {.name = "image",
                           .dtype = Dtype::kUint8,
                           .shape = {24, 32, 3},
                           .is_image = true};
  const auto program = CompileField(image, 0, ops, Layout::kNchw);
  EXPECT_THAT(program.status(), IsOk());
  return program.ok() ? *program : FieldProgram{};
}

const char* NameOf(PassSource source) {
  switch (source) {
    case PassSource::kMoves:
      return "moves";
    case PassSource::kResize:
      return "resize";
    case PassSource::kWarp:
      return "warp";
    case PassSource::kSharpness:
      return "sharpness";
    case PassSource::kBlurX:
      return "blur x";
    case PassSource::kBlurY:
      return "blur y";
  }
  return "unknown";
}

// "source first..end", with the steps that a pass comes after.
std::vector<std::string> PassesOf(const FieldProgram& field) {
  std::vector<std::string> passes;
  for (int p = 0; p < field.num_passes; ++p) {
    const ChainPass& pass = field.passes[p];
    std::string text =
        absl::StrCat(pass.is_drawn ? "drawn" : NameOf(pass.source), " ",
                     pass.first_step, "..", pass.end_step);
    std::vector<int> after;
    for (int s = 0; s < kMaxSteps; ++s) {
      if ((pass.after >> s & 1) != 0) after.push_back(s);
    }
    if (!after.empty()) {
      absl::StrAppend(&text, " after ", absl::StrJoin(after, ","));
    }
    passes.push_back(text);
  }
  return passes;
}

// The passes of a sample, after drawing its steps, as the host has them.
std::unique_ptr<ChainState> Draw(const FieldProgram& field, int64_t sample) {
  auto state = std::make_unique<ChainState>();
  for (int s = 0; s < field.num_steps; ++s) {
    DrawStep(field.steps[s], 7, 0, sample, &state->drawn[s]);
  }
  DrawPasses(field, field.in_height, field.in_width, /*warps_bytes=*/false,
             state.get());
  return state;
}

bool Reads(const DrawnPass& pass, int step) {
  return (pass.source != PassSource::kMoves && pass.source_step == step) ||
         (step >= pass.first_move && step < pass.end_move) ||
         (step >= pass.first_op && step < pass.end_op);
}

TEST(PassPlannerTest, AResizeWithWhatFollowsIsOnePass) {
  const FieldProgram field =
      Compile({Op(kCrop), Op("random_horizontal_flip {}"), Op(kToFloat)});
  EXPECT_THAT(PassesOf(field), ElementsAre("resize 0..3"));
  EXPECT_EQ(field.scratch.image_elements[0], 0);
  EXPECT_EQ(field.scratch.image_elements[1], 0);
}

TEST(PassPlannerTest, NeighbourhoodsReadScratchMemory) {
  const FieldProgram field = Compile({Op(kBlur), Op(kToFloat)});
  EXPECT_THAT(PassesOf(field), ElementsAre("moves 0..0", "blur x 0..0 after 0",
                                           "blur y 0..2 after 0"));
  EXPECT_EQ(field.scratch.image_elements[0], 24 * 32 * 3);
  EXPECT_EQ(field.scratch.image_elements[1], 24 * 32 * 3);
  const FieldProgram rotated =
      Compile({Op("random_rotation { degrees { min: -9.0 max: 9.0 } }")});
  EXPECT_THAT(PassesOf(rotated),
              ElementsAre("moves 0..0", "warp 0..1 after 0"));
  EXPECT_EQ(rotated.scratch.image_elements[0], 24 * 32 * 3);
  EXPECT_EQ(rotated.scratch.image_elements[1], 0);
}

// Any turn may adjust the contrast, but only one of them does.
TEST(PassPlannerTest, AJitterWritesOneImage) {
  const FieldProgram field = Compile({Op(kJitter)});
  EXPECT_THAT(
      PassesOf(field),
      ElementsAre("moves 0..0", "drawn 0..1 after 0", "drawn 1..2 after 1",
                  "drawn 2..3 after 2", "drawn 3..4 after 3"));
  EXPECT_EQ(field.scratch.image_elements[0], 24 * 32 * 3);
  EXPECT_EQ(field.scratch.image_elements[1], 0);
  for (int64_t sample = 0; sample < 50; ++sample) {
    const auto state = Draw(field, sample);
    ASSERT_EQ(state->num_passes, 2);
    const int turn = state->passes[0].statistic_step;
    EXPECT_EQ(state->drawn[turn].kind, StepKind::kAdjustContrast);
    EXPECT_EQ(state->passes[1].first_op, turn);
  }
}

TEST(PassPlannerTest, MovesFollowMovesAndResizesOnly) {
  // Step 3 moves what step 2 may have changed; step 5 joins step 4.
  const FieldProgram field =
      Compile({Op("random_horizontal_flip {}"), Op(kCrop),
               Op("random_invert {}"), Op("random_horizontal_flip {}"),
               Op(kCrop), Op("random_vertical_flip {}"), Op("invert {}"),
               Op("random_vertical_flip {}"), Op("random_horizontal_flip {}")});
  EXPECT_THAT(
      PassesOf(field),
      ElementsAre("moves 0..1", "resize 1..3 after 0", "moves 3..4 after 2",
                  "resize 4..7 after 0,1,2,3", "moves 7..9 after 6"));
  std::set<int> counts;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const auto state = Draw(field, sample);
    const bool is_inverted = state->drawn[2].is_applied;
    EXPECT_EQ(state->num_passes, is_inverted ? 5 : 4);
    EXPECT_TRUE(Reads(state->passes[is_inverted ? 2 : 1], 3));
    counts.insert(state->num_passes);
  }
  EXPECT_THAT(counts, ElementsAre(4, 5));
}

TEST(PassPlannerTest, PassesThatAreNotDrawnJoinThoseBefore) {
  const FieldProgram field = Compile(
      {Op(kCrop), Op("random_apply { p: 0.5 transforms { $0 } }", kBlur),
       Op("random_equalize { p: 0.5 }"), Op(kToFloat),
       Op("normalize { mean: [0.5] std: [0.2] }")});
  EXPECT_THAT(PassesOf(field),
              ElementsAre("resize 0..1", "blur x 1..1 after 1",
                          "blur y 1..2 after 1", "moves 2..5 after 2"));
  std::set<int> counts;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const auto state = Draw(field, sample);
    const bool is_blurred = state->drawn[1].is_applied;
    const bool is_equalized = state->drawn[2].is_applied;
    EXPECT_EQ(state->num_passes,
              1 + (is_blurred ? 2 : 0) + (is_equalized ? 1 : 0));
    EXPECT_EQ(state->passes[0].source, PassSource::kResize);
    // The value ops are the last pass's, and folded.
    const DrawnPass& last = state->passes[state->num_passes - 1];
    EXPECT_EQ(last.folded_op, 3);
    EXPECT_EQ(last.end_op, 5);
    counts.insert(state->num_passes);
  }
  EXPECT_THAT(counts, ElementsAre(1, 2, 3, 4));
}

// A resize of an image that nothing has changed reads the sample.
TEST(PassPlannerTest, AResizeReplacesWhatIsNotDrawn) {
  const FieldProgram field = Compile(
      {Op("random_apply { p: 0.5 transforms { $0 } }", kJitter), Op(kCrop)});
  std::set<int> counts;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const auto state = Draw(field, sample);
    const bool is_drawn = state->drawn[0].is_applied;
    EXPECT_EQ(state->num_passes, is_drawn ? 3 : 1);
    const DrawnPass& last = state->passes[state->num_passes - 1];
    EXPECT_EQ(last.source, PassSource::kResize);
    EXPECT_EQ(last.source_step, 4);
    EXPECT_EQ(last.height, 20);
    EXPECT_EQ(last.width, 20);
    counts.insert(state->num_passes);
  }
  EXPECT_THAT(counts, ElementsAre(1, 3));
}

// The output of each pass fits the memory that was planned for it. Each applied
// step is in one pass, a blur in two.
TEST(PassPlannerTest, EveryPassFitsItsBuffer) {
  const std::vector<Transforms> pipelines = {
      {Op("rand_augment { num_ops: 16 }")},
      {Op("auto_augment {}"), Op(kCrop), Op("trivial_augment_wide {}")},
      {Op(kBlur), Op(kBlur), Op(kJitter), Op(kCrop), Op(kBlur)},
      {Op("resize { size { height: 80 width: 70 } }"),
       Op("random_grayscale {}"),
       Op("random_crop { height: 60 width: 64 padding { left: 9 right: 9 } }"),
       Op("random_perspective {}"), Op(kCrop), Op("random_erasing {}"),
       Op("random_vertical_flip {}")},
      // Jitters that draw alike are two nevertheless.
      {WithDrawId(Op(kJitter), 1), WithDrawId(Op(kJitter), 1)},
  };
  for (const Transforms& ops : pipelines) {
    const FieldProgram field = Compile(ops);
    ASSERT_LE(field.num_passes, kMaxPasses);
    for (int64_t sample = 0; sample < 200; ++sample) {
      const auto state = Draw(field, sample);
      for (int p = 0; p + 1 < state->num_passes; ++p) {
        const DrawnPass& pass = state->passes[p];
        const int64_t elements =
            int64_t{pass.height} * pass.width * pass.channels;
        EXPECT_LE(elements, pass.max_elements);
        EXPECT_LE(pass.max_elements, field.scratch.image_elements[p % 2]);
      }
      for (int s = 0; s < field.num_steps; ++s) {
        if (!state->drawn[s].is_applied) continue;
        int num_readers = 0;
        for (int p = 0; p < state->num_passes; ++p) {
          num_readers += Reads(state->passes[p], s) ? 1 : 0;
        }
        const bool is_blur = state->drawn[s].kind == StepKind::kGaussianBlur;
        EXPECT_EQ(num_readers, is_blur ? 2 : 1) << "step " << s;
      }
    }
  }
}

}  // namespace
}  // namespace datasetd
