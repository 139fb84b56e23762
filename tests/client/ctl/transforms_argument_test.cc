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

TEST(TransformsArgumentTest, PresetsOfSampledGeometryAndColour) {
  const auto pipeline = ParseTransforms("resizedcrop-rotate-jitter", 24, 40);
  ASSERT_THAT(pipeline.status(), IsOk());
  ASSERT_EQ(pipeline->transforms_size(), 3);
  const v1::Transform& crop = pipeline->transforms(0);
  EXPECT_EQ(crop.random_resized_crop().size().height(), 24u);
  EXPECT_EQ(crop.random_resized_crop().size().width(), 40u);
  const v1::Transform& rotation = pipeline->transforms(1);
  EXPECT_EQ(rotation.random_rotation().degrees().min(), -10);
  EXPECT_EQ(rotation.random_rotation().interpolation(),
            v1::INTERPOLATION_MODE_BILINEAR);
  EXPECT_EQ(pipeline->transforms(2).color_jitter().hue().max(), 0.1);
}

TEST(TransformsArgumentTest, EnumsMayLackTheirPrefix) {
  const auto pipeline = ParseTransforms(
      R"([{"pad": {"padding_mode": "reflect"}},
          {"resize": {"interpolation": "nearest-exact"}},
          {"resize": {"interpolation": "INTERPOLATION_MODE_BICUBIC"}},
          {"random_apply": {"transforms": [{"to_dtype": {"dtype":
                                                         "float16"}}]}}])",
      32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_EQ(pipeline->transforms(0).pad().padding_mode(),
            v1::PADDING_MODE_REFLECT);
  EXPECT_EQ(pipeline->transforms(1).resize().interpolation(),
            v1::INTERPOLATION_MODE_NEAREST_EXACT);
  EXPECT_EQ(pipeline->transforms(2).resize().interpolation(),
            v1::INTERPOLATION_MODE_BICUBIC);
  EXPECT_EQ(
      pipeline->transforms(3).random_apply().transforms(0).to_dtype().dtype(),
      v1::DTYPE_FLOAT16);
}

TEST(TransformsArgumentTest, FileIsReadLikeTheArgument) {
  const TempDir directory;
  std::ofstream(directory.File("t.json"))
      << "\n[{\"random_vertical_flip\":{}}]";
  const auto pipeline = ParseTransforms("@" + directory.File("t.json"), 32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_TRUE(pipeline->transforms(0).has_random_vertical_flip());
}

TEST(TransformsArgumentTest, AFileWithoutTransformsIsRefused) {
  const TempDir directory;
  for (const char* text : {"", " \n"}) {
    std::ofstream(directory.File("t.json")) << text;
    EXPECT_THAT(
        ParseTransforms("@" + directory.File("t.json"), 32, 32).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(directory.File("t.json")),
                       HasSubstr("holds no transforms; write [] for none"))));
  }
  std::ofstream(directory.File("t.json")) << "[]";
  EXPECT_THAT(ParseTransforms("@" + directory.File("t.json"), 32, 32).status(),
              IsOk());
  const std::string folder = directory.path().string();
  EXPECT_THAT(ParseTransforms("@" + folder, 32, 32).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(folder + ": Is a directory")));
}

TEST(TransformsArgumentTest, ALongFileIsReadToItsEnd) {
  const TempDir directory;
  std::ofstream(directory.File("t.json"))
      << "[" << std::string(20000, ' ') << "{\"random_vertical_flip\":{}}]";
  const auto pipeline = ParseTransforms("@" + directory.File("t.json"), 32, 32);
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_TRUE(pipeline->transforms(0).has_random_vertical_flip());
}

TEST(TransformsArgumentTest, ErrorsNameWhatIsWrongAndWhatIsExpected) {
  EXPECT_THAT(ParseTransforms("crop-spin", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'spin'"), HasSubstr("altflip"))));
  EXPECT_THAT(ParseTransforms(R"([{"spin": {}}])", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("spin"), HasSubstr("random_crop"))));
  EXPECT_THAT(ParseTransforms(R"([{"pad": {"padding_mode": "wrap"}}])", 32, 32)
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("wrap")));
  EXPECT_THAT(ParseTransforms("[", 32, 32).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      ParseTransforms("@/nonexistent/t.json", 32, 32).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/t.json")));
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
