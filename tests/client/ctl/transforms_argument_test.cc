#include "client/ctl/transforms_argument.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::ctl {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TransformsArgumentTest, NoneAndNothingAreTheSamplesAsTheyAre) {
  for (const char* text : {"", "none", " none\n"}) {
    const auto pipeline = ParseTransforms(text, 32, 32);
    ASSERT_THAT(pipeline.status(), IsOk()) << text;
    EXPECT_EQ(pipeline->transforms_size(), 0) << text;
  }
}

TEST(TransformsArgumentTest, PresetsAreDoneInTheirOrder) {
  const auto pipeline = ParseTransforms("flip-crop-altflip-vflip", 32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  ASSERT_EQ(pipeline->transforms_size(), 4);
  EXPECT_TRUE(pipeline->transforms(0).has_random_horizontal_flip());
  EXPECT_TRUE(pipeline->transforms(1).has_random_crop());
  EXPECT_TRUE(pipeline->transforms(2).has_alternating_flip());
  EXPECT_TRUE(pipeline->transforms(3).has_random_vertical_flip());
}

TEST(TransformsArgumentTest, CropKeepsTheSizeAndPadsAnEighth) {
  const auto pipeline = ParseTransforms("crop", 24, 40);
  ASSERT_THAT(pipeline.status(), IsOk());
  const v1::RandomCrop& crop = pipeline->transforms(0).random_crop();
  EXPECT_EQ(crop.height(), 24u);
  EXPECT_EQ(crop.width(), 40u);
  EXPECT_EQ(crop.padding().left(), 5u);
  EXPECT_EQ(crop.padding().bottom(), 5u);
  EXPECT_EQ(crop.padding_mode(), v1::PADDING_MODE_REFLECT);
}

TEST(TransformsArgumentTest, CropOfATinyImagePadsLessThanItsSide) {
  const auto pipeline = ParseTransforms("crop", 1, 64);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_EQ(pipeline->transforms(0).random_crop().padding().top(), 0u);
}

TEST(TransformsArgumentTest, JsonIsAListOrAPipeline) {
  for (const char* text :
       {R"([{"center_crop": {"height": 3, "width": 4}}])",
        R"({"transforms": [{"center_crop": {"height": 3, "width": 4}}]})"}) {
    const auto pipeline = ParseTransforms(text, 32, 32);
    ASSERT_THAT(pipeline.status(), IsOk()) << text;
    ASSERT_EQ(pipeline->transforms_size(), 1);
    EXPECT_EQ(pipeline->transforms(0).center_crop().width(), 4u);
  }
}

TEST(TransformsArgumentTest, FileIsReadLikeTheArgument) {
  const TempDir directory;
  std::ofstream(directory.File("t.json"))
      << "\n[{\"random_vertical_flip\":{}}]";
  const auto pipeline =
      ParseTransforms("@" + directory.File("t.json"), 32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_TRUE(pipeline->transforms(0).has_random_vertical_flip());
}

TEST(TransformsArgumentTest, ErrorsNameWhatIsWrongAndWhatIsExpected) {
  EXPECT_THAT(ParseTransforms("crop-rotate", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'rotate'"), HasSubstr("altflip"))));
  EXPECT_THAT(ParseTransforms(R"([{"rotate": {}}])", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("rotate"), HasSubstr("random_crop"))));
  EXPECT_THAT(ParseTransforms("[", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseTransforms("@/nonexistent/t.json", 32, 32).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("/nonexistent/t.json")));
}

TEST(TransformsArgumentTest, OnlyTheLastNumberOpsAreTaken) {
  auto pipeline = ParseTransforms(
      R"([{"to_dtype": {}}, {"random_vertical_flip": {}},
          {"to_dtype": {}}, {"normalize": {}}])",
      32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_THAT(TakeNumberOps(&*pipeline), ElementsAre("to_dtype", "normalize"));
  EXPECT_EQ(pipeline->transforms_size(), 2);
  EXPECT_THAT(TakeNumberOps(&*pipeline), IsEmpty());
}

}  // namespace
}  // namespace datasetd::ctl
