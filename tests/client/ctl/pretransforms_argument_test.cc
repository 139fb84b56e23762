#include "client/ctl/pretransforms_argument.h"

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
using ::testing::HasSubstr;

TEST(PretransformsArgumentTest, NoneAndNothingAreTheSamplesAsTheyAre) {
  for (const char* text : {"", "none", " none\n"}) {
    const auto pipeline = ParsePretransforms(text);
    ASSERT_THAT(pipeline.status(), IsOk()) << text;
    EXPECT_EQ(pipeline->transforms_size(), 0) << text;
  }
}

TEST(PretransformsArgumentTest, JsonIsAListOrAPipeline) {
  for (const char* text :
       {R"([{"center_crop": {"height": 3, "width": 4}}])",
        R"({"transforms": [{"center_crop": {"height": 3, "width": 4}}]})"}) {
    const auto pipeline = ParsePretransforms(text);
    ASSERT_THAT(pipeline.status(), IsOk()) << text;
    ASSERT_EQ(pipeline->transforms_size(), 1);
    EXPECT_EQ(pipeline->transforms(0).center_crop().width(), 4u);
  }
}

TEST(PretransformsArgumentTest, EnumsMayLackTheirPrefix) {
  const auto pipeline = ParsePretransforms(
      R"([{"pad": {"padding_mode": "reflect"}},
          {"resize": {"interpolation": "nearest-exact"}},
          {"resize": {"interpolation": "INTERPOLATION_MODE_BICUBIC"}},
          {"random_apply": {"transforms": [{"to_dtype": {"dtype":
                                                         "float16"}}]}}])");
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

TEST(PretransformsArgumentTest, FileIsReadLikeTheArgument) {
  const TempDir directory;
  std::ofstream(directory.File("t.json"))
      << "\n[{\"random_vertical_flip\":{}}]";
  const auto pipeline = ParsePretransforms("@" + directory.File("t.json"));
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_TRUE(pipeline->transforms(0).has_random_vertical_flip());
}

TEST(PretransformsArgumentTest, AFileWithoutTransformsIsRefused) {
  const TempDir directory;
  for (const char* text : {"", " \n"}) {
    std::ofstream(directory.File("t.json")) << text;
    EXPECT_THAT(
        ParsePretransforms("@" + directory.File("t.json")).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(directory.File("t.json")),
                       HasSubstr("holds no transforms; write [] for none"))));
  }
  std::ofstream(directory.File("t.json")) << "[]";
  EXPECT_THAT(ParsePretransforms("@" + directory.File("t.json")).status(),
              IsOk());
  const std::string folder = directory.path().string();
  EXPECT_THAT(ParsePretransforms("@" + folder).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(folder + ": Is a directory")));
}

TEST(PretransformsArgumentTest, ALongFileIsReadToItsEnd) {
  const TempDir directory;
  std::ofstream(directory.File("t.json"))
      << "[" << std::string(20000, ' ') << "{\"random_vertical_flip\":{}}]";
  const auto pipeline = ParsePretransforms("@" + directory.File("t.json"));
  ASSERT_THAT(pipeline.status(), IsOk());
  EXPECT_TRUE(pipeline->transforms(0).has_random_vertical_flip());
}

TEST(PretransformsArgumentTest, ErrorsNameWhatIsWrongAndWhatIsExpected) {
  EXPECT_THAT(ParsePretransforms("crop-flip").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--pretransforms: 'crop-flip'"),
                             HasSubstr("JSON list"), HasSubstr("@FILE"))));
  EXPECT_THAT(ParsePretransforms(R"([{"spin": {}}])").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--pretransforms as JSON"),
                             HasSubstr("spin"), HasSubstr("resize"))));
  EXPECT_THAT(
      ParsePretransforms(R"([{"pad": {"padding_mode": "wrap"}}])").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("wrap")));
  EXPECT_THAT(ParsePretransforms("[").status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      ParsePretransforms("@/nonexistent/t.json").status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/t.json")));
}

}  // namespace
}  // namespace datasetd::ctl
