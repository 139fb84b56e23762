#include "server/feed/feed_fields.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/feed/feed_explanation.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Names = std::vector<std::string>;

v1::FieldOptions Field(const std::vector<v1::Transform>& ops,
                       const std::string& source = "", uint32_t view = 0) {
  v1::FieldOptions options;
  *options.mutable_transforms() = {ops.begin(), ops.end()};
  options.set_source(source);
  options.set_view(view);
  return options;
}

const FieldSpec kPhoto = {
    .name = "photo", .shape = {kAnyExtent, kAnyExtent, 3}, .is_image = true};
const FieldSpec kLeft = {.name = "left", .shape = {8, 6, 3}, .is_image = true};
const FieldSpec kRight = {
    .name = "right", .shape = {8, 6, 3}, .is_image = true};
const FieldSpec kLabel = {.name = "label", .dtype = Dtype::kInt64};

// The dataset has two samples, which are 4x5 and 6x7 in packed fields.
class FeedFieldsTest : public ::testing::Test {
 protected:
  void MakeDataset(std::vector<FieldSpec> fields) {
    Dataset::Contents contents;
    contents.name = "a";
    contents.backend = backend_.get();
    contents.num_samples = 2;
    for (FieldSpec& field : fields) {
      Dataset::Contents::Packed& packed = contents.packed.emplace_back();
      int64_t size_bytes = 0;
      if (field.is_packed()) {
        packed.index.emplace(PixelBytes(field));
        packed.index->Add({4, 5});
        packed.index->Add({6, 7});
        packed.index->Describe(&field);
        packed.memory = *backend_->Allocate(
            static_cast<size_t>(packed.index->index_bytes()));
        size_bytes = packed.index->size_bytes();
      } else {
        size_bytes = 2 * field.sample_bytes();
      }
      contents.memory.push_back(
          *backend_->Allocate(static_cast<size_t>(size_bytes)));
    }
    contents.fields = std::move(fields);
    dataset_ = std::make_unique<Dataset>(std::move(contents));
  }
  absl::StatusOr<FeedFields> Compile(const Names& names,
                                     const FieldOptionsMap& options,
                                     bool skips_packed = false) {
    return CompileFeedFields(*dataset_, names, options, skips_packed);
  }
  static Names NamesOf(const FeedFields& fields) {
    Names names;
    for (const FieldSpec& spec : fields.specs) names.push_back(spec.name);
    return names;
  }

  std::unique_ptr<Backend> backend_ = CreateHostBackend({.num_threads = 1});
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(FeedFieldsTest, AllOfThemUnlessSomeAreNamed) {
  MakeDataset({kLeft, kRight, kLabel});
  const auto all = Compile({}, {});
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(NamesOf(*all), ElementsAre("left", "right", "label"));
  EXPECT_THAT(all->sources, ElementsAre(0, 1, 2));

  const auto some = Compile({"label", "left"}, {});
  ASSERT_THAT(some, IsOk());
  EXPECT_THAT(NamesOf(*some), ElementsAre("label", "left"));
  EXPECT_THAT(some->sources, ElementsAre(2, 0));
  ASSERT_THAT(some->programs, SizeIs(2));
  EXPECT_EQ(some->programs[0].source, dataset_->field_data(2));
  EXPECT_EQ(some->programs[0].sample_stride_bytes, 8);
  EXPECT_EQ(some->programs[1].source, dataset_->field_data(0));
  ASSERT_THAT(some->pipelines, SizeIs(2));
  EXPECT_EQ(some->pipelines[0].field, "label");
  EXPECT_NE(TransformsHash(some->pipelines), TransformsHash(all->pipelines));

  const auto named = Compile({"left", "right", "label"}, {});
  ASSERT_THAT(named, IsOk());
  EXPECT_EQ(TransformsHash(named->pipelines), TransformsHash(all->pipelines));
}

TEST_F(FeedFieldsTest, WhatIsDrawnDoesNotDependOnTheOthers) {
  MakeDataset({kLeft, kRight, kLabel});
  const FieldOptionsMap flips = {
      {"right", Field({Op("random_horizontal_flip {}")})}};
  const auto all = Compile({}, flips);
  const auto alone = Compile({"right"}, flips);
  ASSERT_THAT(all, IsOk());
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ(alone->programs[0].moves[0].op_index,
            all->programs[1].moves[0].op_index);
}

TEST_F(FeedFieldsTest, ARaggedFieldThatIsLeftOutNeedsNoSize) {
  MakeDataset({kPhoto, kLabel});
  EXPECT_THAT(Compile({}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("field 'photo': its samples have sizes"),
                             HasSubstr("can be left out"))));
  const auto labels = Compile({"label"}, {});
  ASSERT_THAT(labels, IsOk());
  EXPECT_EQ(labels->programs[0].ragged, nullptr);

  // In another place than the dataset has it.
  const auto both =
      Compile({"label", "photo"},
              {{"photo", Field({Op("center_crop { height: 4 width: 4 }")})}});
  ASSERT_THAT(both, IsOk());
  EXPECT_EQ(both->programs[1].ragged, dataset_->field_index_data(0));
  EXPECT_EQ(both->programs[1].sample_stride_bytes, 0);

  const auto skipped = Compile({}, {}, /*skips_packed=*/true);
  ASSERT_THAT(skipped, IsOk());
  EXPECT_EQ(skipped->programs[0].source, nullptr);
  EXPECT_EQ(skipped->programs[1].source, dataset_->field_data(1));
}

TEST_F(FeedFieldsTest, PairsAreLookedUpInTheDataset) {
  FieldSpec mask = kPhoto;
  mask.name = "mask";
  MakeDataset({kLabel, kPhoto, mask});
  v1::Transform crop = Op("random_crop { height: 4 width: 4 }");
  crop.set_draw_id(1);
  const v1::FieldOptions cropped = Field({crop});
  EXPECT_THAT(
      Compile({"mask", "photo"}, {{"mask", cropped}, {"photo", cropped}}),
      IsOk());
}

TEST_F(FeedFieldsTest, ViewsWhoseSizesDifferAreNamed) {
  MakeDataset({kLeft});
  v1::Transform crop = Op("random_crop { height: 4 width: 4 }");
  crop.set_draw_id(7);
  const v1::Transform resize = Op("resize { size { height: 6 width: 6 } }");
  EXPECT_THAT(Compile({}, {{"one", Field({crop}, "left", 1)},
                           {"two", Field({resize, crop}, "left", 1)}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("fields 'one' and 'two' share an op that "
                                 "draws by the image's size, but the image is "
                                 "8x6 in the one and 6x6 in the other")));
}

TEST_F(FeedFieldsTest, MixedLabelsMustBeAmongThem) {
  MakeDataset({kRight, kLeft, kLabel});
  const FieldOptionsMap mix = {
      {"left", Field({Op("mix_up { num_classes: 10 labels: 'label' }")})}};
  const auto linked = Compile({"label", "left"}, mix);
  ASSERT_THAT(linked, IsOk());
  EXPECT_EQ(linked->programs[1].mix.labels_field, 0);
  EXPECT_EQ(linked->programs[0].num_classes, 10);
  EXPECT_THAT(Compile({"left"}, mix),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'label' is no field of the feed")));
}

TEST_F(FeedFieldsTest, ViewsOfAFieldDrawByThemselves) {
  MakeDataset({kLeft, kRight, kLabel});
  const auto view = [](const char* source, uint32_t number) {
    return Field({Op("random_horizontal_flip {}")}, source, number);
  };
  const FieldOptionsMap options = {
      {"a", view("right", 0)}, {"b", view("right", 1)}, {"left", view("", 1)}};
  const auto all = Compile({}, options);
  ASSERT_THAT(all, IsOk());
  EXPECT_THAT(NamesOf(*all), ElementsAre("left", "right", "label", "a", "b"));
  EXPECT_THAT(all->sources, ElementsAre(0, 1, 2, 1, 1));
  EXPECT_EQ(all->programs[4].source, dataset_->field_data(1));
  const auto op_index = [](const FieldProgram& program) {
    return program.moves[0].op_index;
  };
  EXPECT_EQ(op_index(all->programs[3]), 1u << 8);
  EXPECT_EQ(op_index(all->programs[4]), 1u << 17 | 1u << 8);
  EXPECT_EQ(op_index(all->programs[0]), 1u << 17);
  const auto some = Compile({"b", "label"}, {{"b", view("right", 1)}});
  ASSERT_THAT(some, IsOk());
  EXPECT_THAT(NamesOf(*some), ElementsAre("b", "label"));
  EXPECT_EQ(op_index(some->programs[0]), op_index(all->programs[4]));
  // The number counts for the hash, and the source.
  const auto other = Compile({"b", "label"}, {{"b", view("right", 2)}});
  const auto left = Compile({"b", "label"}, {{"b", view("left", 1)}});
  EXPECT_NE(TransformsHash(some->pipelines), TransformsHash(other->pipelines));
  EXPECT_NE(TransformsHash(some->pipelines), TransformsHash(left->pipelines));
}

TEST_F(FeedFieldsTest, WrongViewsAreNamed) {
  MakeDataset({kLeft, kRight, kLabel});
  EXPECT_THAT(Compile({}, {{"a", Field({}, "mask")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("fields: source of 'a': dataset 'a' has no "
                                 "field 'mask'; it has: left, right, label")));
  EXPECT_THAT(Compile({}, {{"left", Field({}, "right")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'left' with source 'right' has the name of a "
                                 "field")));
  EXPECT_THAT(Compile({}, {{std::string(129, 'a'), Field({}, "right")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a name of 129 bytes")));
  EXPECT_THAT(Compile({"left"}, {{"a", Field({}, "right")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 'a' is not among the fields")));
}

TEST_F(FeedFieldsTest, WrongNamesAreNamed) {
  MakeDataset({kLeft, kRight, kLabel});
  EXPECT_THAT(Compile({"left", "mask"}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field_names: dataset 'a' has no field "
                                 "'mask'; it has: left, right, label")));
  EXPECT_THAT(Compile({"left", "label", "left"}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field_names: 'left' is named twice")));
  EXPECT_THAT(Compile({"left", "label"}, {{"right", {}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 'right' is not among the fields of "
                                 "the feed, left, label")));
  EXPECT_THAT(Compile({"left"}, {{"mask", {}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("transforms: dataset 'a' has no field 'mask'; "
                                 "it has: left, right, label")));
}

TEST_F(FeedFieldsTest, OfManyFieldsSomeAreChosen) {
  std::vector<FieldSpec> fields;
  for (int i = 0; i < kMaxDatasetFields; ++i) {
    fields.push_back(kLeft);
    fields.back().name = absl::StrCat("f", i);
  }
  MakeDataset(fields);
  EXPECT_THAT(Compile({}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("dataset 'a' has 256 fields; a feed carries "
                                 "at most 8: choose them with field_names")));
  Names names = {"f255", "f1", "f2", "f3", "f4", "f5", "f6", "f7"};
  const auto eight =
      Compile(names, {{"f255", Field({Op("random_horizontal_flip {}")})}});
  ASSERT_THAT(eight, IsOk());
  EXPECT_EQ(eight->programs[0].moves[0].op_index, 255u << 8);
  v1::ExplainTransformsRequest request;
  request.add_indices(1);
  const auto explained = ExplainFeed(
      request, {{"f255", Field({Op("random_horizontal_flip {}")})}}, *dataset_);
  ASSERT_THAT(explained, IsOk());
  ASSERT_THAT(explained->samples(), SizeIs(1));
  ASSERT_THAT(explained->samples(0).ops(), SizeIs(1));
  EXPECT_EQ(explained->samples(0).ops(0).field(), "f255");
  EXPECT_THAT(ExplainFeed(request, {}, *dataset_), IsOk());
  EXPECT_THAT(ExplainFeed(request, {{"mask", {}}}, *dataset_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("transforms: dataset 'a' has no field "
                                 "'mask'; it has: f0, f1")));
  names.push_back("f8");
  EXPECT_THAT(Compile(names, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field_names: 9 fields; a feed carries at "
                                 "most 8")));
}

TEST_F(FeedFieldsTest, AMixIsExplainedWithItsLabelsFarBehind) {
  std::vector<FieldSpec> fields;
  for (int i = 0; i < 20; ++i) {
    fields.push_back(kLeft);
    fields.back().name = absl::StrCat("f", i);
  }
  fields.push_back(kLabel);
  MakeDataset(fields);
  v1::ExplainTransformsRequest request;
  request.add_indices(0);
  const v1::FieldOptions mix =
      Field({Op("mix_up { num_classes: 10 labels: 'label' }")});
  const auto explained =
      ExplainFeed(request,
                  {{"view", Field({Op("random_horizontal_flip {}")}, "f0", 1)},
                   {"f19", mix}},
                  *dataset_);
  ASSERT_THAT(explained, IsOk());
  Names found;
  for (const v1::DrawnOp& op : explained->samples(0).ops()) {
    found.push_back(absl::StrCat(op.field(), " ", op.name()));
  }
  EXPECT_THAT(found, ElementsAre("f19 MixUp", "view HorizontalFlip"));
  EXPECT_THAT(
      ExplainFeed(
          request,
          {{"f19", Field({Op("mix_up { num_classes: 10 labels: 'x' }")}, "")}},
          *dataset_),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("labels: 'x' is no field of the feed")));
}

// An op of a request may be many of an explanation.
TEST_F(FeedFieldsTest, AnExplanationIsLimitedByWhatItTells) {
  MakeDataset({kLeft});
  FieldOptionsMap options;
  for (uint32_t i = 1; i <= 7; ++i) {
    options[absl::StrCat("view", i)] =
        Field({Op("rand_augment { num_ops: 32 }")}, "left", i);
  }
  v1::ExplainTransformsRequest request;
  request.mutable_indices()->Resize(2500, 0);
  EXPECT_THAT(ExplainFeed(request, options, *dataset_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "indices: 2500 samples of 225 ops are more than 20000; "
                       "ask for at most 88 samples at a time"));
  request.mutable_indices()->Truncate(88);
  const auto explained = ExplainFeed(request, options, *dataset_);
  ASSERT_THAT(explained, IsOk());
  EXPECT_THAT(explained->samples(), SizeIs(88));
}

TEST(CompleteFieldOptionsTest, DefaultsAreFilledInAndWrongValuesNamed) {
  const auto complete = [](const std::string& field) {
    return CompleteFieldOptions(
        With(v1::FeedOptions(),
             "fields { key: 'left' value { " + field + " } }")
            .fields());
  };
  const auto flip = complete(
      "view: 255 layout: LAYOUT_NHWC "
      "transforms { random_horizontal_flip {} }");
  ASSERT_THAT(flip, IsOk());
  const v1::FieldOptions& left = flip->at("left");
  EXPECT_EQ(left.view(), 255u);
  EXPECT_EQ(left.layout(), v1::LAYOUT_NHWC);
  EXPECT_EQ(left.transforms(0).random_horizontal_flip().p(), 0.5);
  EXPECT_THAT(complete("view: 256"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "fields: view of 'left' is 256: at most 255"));
  EXPECT_THAT(complete("transforms { random_horizontal_flip { p: 2 } }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 'left', transforms[0] "
                                 "RandomHorizontalFlip: ")));
  v1::FeedOptions unknown;
  (*unknown.mutable_fields())["left"].set_layout(static_cast<v1::Layout>(3));
  EXPECT_THAT(CompleteFieldOptions(unknown.fields()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "field 'left': layout 3 is unknown; one of NCHW, NHWC"));
}

}  // namespace
}  // namespace datasetd
