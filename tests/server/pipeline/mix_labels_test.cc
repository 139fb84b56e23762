#include "server/pipeline/mix_labels.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/feed/slot_layout.h"
#include "server/pipeline/pipeline.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const FieldSpec kImage = {
    .name = "image", .shape = {8, 6, 3}, .is_image = true};
const FieldSpec kOther = {
    .name = "other", .shape = {4, 4, 1}, .is_image = true};
const FieldSpec kLabel = {.name = "label", .dtype = Dtype::kInt16};
const FieldSpec kScore = {.name = "score", .dtype = Dtype::kFloat32};
const FieldSpec kPair = {.name = "pair", .dtype = Dtype::kInt64, .shape = {2}};

using FieldTransforms = std::vector<Transforms>;

absl::StatusOr<std::vector<FieldProgram>> Link(
    const std::vector<FieldSpec>& fields, const FieldTransforms& transforms) {
  std::vector<FieldProgram> programs;
  for (size_t f = 0; f < fields.size(); ++f) {
    auto program = CompileField(fields[f], static_cast<int>(f), transforms[f],
                                Layout::kNchw);
    if (!program.ok()) return program.status();
    programs.push_back(*program);
  }
  absl::Status status =
      LinkMixedLabels(fields, transforms, absl::MakeSpan(programs));
  if (!status.ok()) return status;
  return programs;
}

absl::Status Compile(Transforms ops) {
  return Link({kImage, kLabel}, {std::move(ops), {}}).status();
}

TEST(MixLabelsTest, LabelsBecomeOneNumberPerClass) {
  const std::vector<FieldSpec> fields = {kImage, kScore, kLabel};
  auto programs = Link(
      fields, {{Op("vertical_flip {}"),
                Op("cut_mix { alpha: 0.5 num_classes: 7 per_sample: true }")},
               {},
               {}});
  ASSERT_THAT(programs, IsOk());
  const MixProgram& mix = (*programs)[0].mix;
  EXPECT_EQ(mix.kind, MixKind::kCutMix);
  EXPECT_TRUE(mix.per_sample);
  EXPECT_EQ(mix.alpha, 0.5);
  EXPECT_EQ(mix.op_index, OpIndex(0, 1, 0, 0));
  EXPECT_EQ(mix.position, 1);
  EXPECT_EQ(mix.labels_field, 2);
  EXPECT_EQ((*programs)[0].num_steps, 1);
  EXPECT_EQ((*programs)[0].scratch.partner_elements, 8 * 6 * 3);

  const v1::SlotLayout layout =
      *ComputeSlotLayout(fields, absl::MakeSpan(*programs), 50);
  const v1::SlotField& label = layout.fields(2);
  EXPECT_EQ(label.dtype(), v1::DTYPE_FLOAT32);
  EXPECT_THAT(label.shape(), ElementsAre(50, 7));
  EXPECT_THAT(label.strides(), ElementsAre(7, 1));
  // 50 * 7 * 4 bytes, aligned.
  EXPECT_EQ(layout.indices_offset_bytes() - label.offset_bytes(),
            6 * kSlotAlignmentBytes);
}

TEST(MixLabelsTest, WithoutAMixNothingChanges) {
  auto programs = Link({kImage, kLabel}, {{Op("vertical_flip {}")}, {}});
  ASSERT_THAT(programs, IsOk());
  EXPECT_EQ((*programs)[0].num_steps, 0);
  EXPECT_EQ((*programs)[1].num_classes, 0);
  EXPECT_EQ((*programs)[1].out_dtype, Dtype::kInt64);
}

TEST(MixLabelsTest, ParametersAreChecked) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double alpha : {0.0, -1.0, kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_THAT(
        Compile({Op("mix_up { alpha: $0 num_classes: 3 }", alpha)}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith("field 'image', transforms[0] MixUp: alpha"),
                       HasSubstr("above 0"))));
  }
  for (const uint32_t num_classes : {0u, 1u, 1u << 30, 0xFFFFFFFFu}) {
    EXPECT_THAT(Compile({Op("cut_mix { num_classes: $0 }", num_classes)}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("CutMix: num_classes is"),
                               HasSubstr("2..1073741823"))));
  }
}

TEST(MixLabelsTest, AMixIsLastAndAlone) {
  const v1::Transform mix = Op("mix_up { num_classes: 3 }");
  EXPECT_THAT(Compile({mix, Op("invert {}")}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("transforms[1] Invert"),
                             HasSubstr("must be the last"))));
  EXPECT_THAT(Compile({mix, mix}), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("must be the last")));
  const v1::Transform group =
      Op("random_apply { transforms { mix_up { num_classes: 3 } } }");
  EXPECT_THAT(Compile({group}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("transforms[0] MixUp"),
                             HasSubstr("after the RandomApply"))));
  FieldSpec mask = kImage;
  mask.is_mask = true;
  EXPECT_THAT(Link({mask, kLabel}, {{mix}, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the field is a mask")));
}

TEST(MixLabelsTest, LabelsAreAFieldOfIntegers) {
  const std::vector<FieldSpec> fields = {kImage, kOther, kLabel, kScore, kPair};
  const auto link = [&](const std::string& labels) {
    return Link(fields, {{Op("mix_up { num_classes: 3 labels: '$0' }", labels)},
                         {},
                         {},
                         {},
                         {}});
  };
  EXPECT_THAT(link("label"), IsOk());
  EXPECT_THAT(link("class"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("field 'image', transforms[0] MixUp: "
                                        "labels: 'class' is no field"),
                             HasSubstr("labels: label"))));
  for (const char* labels : {"image", "other", "score", "pair"}) {
    EXPECT_THAT(link(labels),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not one integer per sample")));
  }
  EXPECT_THAT(Link({kImage, kLabel}, {{Op("mix_up { num_classes: 3 }")},
                                      {Op("to_dtype { dtype: DTYPE_INT64 }")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has transforms of its own")));
  EXPECT_THAT(
      Link({kImage, kOther, kLabel}, {{Op("mix_up { num_classes: 3 }")},
                                      {Op("cut_mix { num_classes: 3 }")},
                                      {}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("field 'other'"),
                     HasSubstr("mixed by field 'image' already"))));
}

TEST(MixLabelsTest, ImagesShareLabelsIfTheyShareTheDraw) {
  const auto link = [](v1::Transform one, v1::Transform other) {
    one.set_draw_id(5);
    other.set_draw_id(5);
    return Link({kImage, kLabel, kOther},
                {{one}, {}, {Op("vertical_flip {}"), other}});
  };
  const auto programs =
      link(Op("mix_up { num_classes: 3 }"), Op("mix_up { num_classes: 3 }"));
  ASSERT_THAT(programs, IsOk());
  const MixProgram& writer = (*programs)[0].mix;
  const MixProgram& other = (*programs)[2].mix;
  EXPECT_EQ(writer.labels_field, 1);
  EXPECT_EQ(other.labels_field, -1);
  EXPECT_EQ(other.kind, MixKind::kMixUp);
  EXPECT_EQ(writer.op_index, other.op_index);

  const v1::Transform mix_up = Op("mix_up { num_classes: 3 }");
  for (const v1::Transform& another :
       {Op("cut_mix { num_classes: 3 }"),
        Op("mix_up { alpha: 2.0 num_classes: 3 }"),
        Op("mix_up { num_classes: 4 }"),
        Op("mix_up { num_classes: 3 per_sample: true }")}) {
    EXPECT_THAT(link(mix_up, another),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("give both images one op")));
  }
  // Without the draw_id they draw apart.
  EXPECT_THAT(
      Link({kImage, kLabel, kOther}, {{mix_up}, {}, {mix_up}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one draw_id")));
}

TEST(MixLabelsTest, ImagesThatShareABoxHaveOneSize) {
  v1::Transform cut = Op("cut_mix { num_classes: 3 }");
  cut.set_draw_id(5);
  const std::vector<FieldSpec> fields = {kImage, kOther, kLabel};
  EXPECT_THAT(Link(fields, {{cut}, {cut}, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("field 'other'"), HasSubstr("8x6"),
                             HasSubstr("4x4"))));
  EXPECT_THAT(
      Link(fields,
           {{Op("center_crop { height: 4 width: 4 }"), cut}, {cut}, {}}),
      IsOk());
}

class CheckMixedLabelsTest : public ::testing::Test {
 protected:
  void SetLabels(const std::vector<int16_t>& labels) {
    const auto num_samples = static_cast<int64_t>(labels.size());
    Dataset::Contents contents;
    contents.name = "digits";
    contents.backend = &backend_;
    contents.num_samples = num_samples;
    contents.fields = {kImage, kLabel};
    for (const FieldSpec& field : contents.fields) {
      contents.memory.push_back(
          *backend_.Allocate(num_samples * field.sample_bytes()));
    }
    std::memcpy(contents.memory[1].data(), labels.data(),
                labels.size() * sizeof(int16_t));
    dataset_ = std::make_unique<Dataset>(std::move(contents));
  }

  // Checks the labels against `num_classes`.
  absl::Status Check(int64_t num_classes) const {
    const auto programs =
        Link(dataset_->fields(),
             {{Op("mix_up { num_classes: $0 }", num_classes)}, {}});
    EXPECT_THAT(programs, IsOk());
    return CheckMixedLabels(*dataset_, {0, 1}, *programs);
  }

  FakeBackend backend_{{}};
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(CheckMixedLabelsTest, EveryLabelIsBelowNumClasses) {
  SetLabels({0, 9, 3});
  EXPECT_THAT(Check(10), IsOk());
  EXPECT_THAT(Check(9),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("num_classes is 9"),
                             HasSubstr("sample 1 of dataset 'digits'"),
                             HasSubstr("the label 9 in field 'label'"))));
  SetLabels({0, 1, -1});
  EXPECT_THAT(Check(9), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("the label -1")));
}

TEST_F(CheckMixedLabelsTest, AllSamplesAreRead) {
  // More than are read at once.
  std::vector<int16_t> labels(1'200'000, 1);
  SetLabels(labels);
  EXPECT_THAT(Check(2), IsOk());
  for (const size_t at :
       {size_t{524'287}, size_t{524'288}, size_t{1'199'999}}) {
    std::vector<int16_t> wrong = labels;
    wrong[at] = 2;
    SetLabels(wrong);
    EXPECT_THAT(Check(2),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("sample " + std::to_string(at) + " of")));
  }
}

TEST_F(CheckMixedLabelsTest, LabelsAreReadOnce) {
  SetLabels({0, 9, 3});
  std::vector<std::thread> feeds;
  for (int i = 0; i < 4; ++i) {
    feeds.emplace_back([&] { EXPECT_THAT(Check(10), IsOk()); });
  }
  for (std::thread& feed : feeds) feed.join();
  EXPECT_THAT(Check(100), IsOk());
  EXPECT_EQ(backend_.num_copies(), 1);
  // To say which one is wrong.
  EXPECT_THAT(Check(9), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("sample 1 of")));
  EXPECT_EQ(backend_.num_copies(), 2);
}

TEST_F(CheckMixedLabelsTest, AnErrorIsNotKept) {
  SetLabels({0, 9, 3});
  backend_.FailAllocation(1);
  EXPECT_THAT(Check(10), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Check(10), IsOk());
}

}  // namespace
}  // namespace datasetd
