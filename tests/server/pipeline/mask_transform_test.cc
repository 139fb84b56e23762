#include "server/pipeline/mask_transform.h"

#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Spec>
Spec MustBeForMask(const TransformSpec& transform) {
  const auto result = ForMask(transform);
  EXPECT_THAT(result.status(), IsOk());
  return result.ok() ? std::get<Spec>(result->op) : Spec();
}

TEST(MaskTransformTest, InterpolationBecomesNearest) {
  const auto resize = MustBeForMask<ResizeSpec>(ResizeSpec{
      .height = 2, .width = 3, .interpolation = InterpolationMode::kBicubic});
  EXPECT_EQ(resize.interpolation, InterpolationMode::kNearest);
  EXPECT_FALSE(resize.antialias);
  EXPECT_EQ(resize.width, 3);
  EXPECT_EQ(MustBeForMask<RandomAffineSpec>(
                RandomAffineSpec{.interpolation = InterpolationMode::kBilinear})
                .interpolation,
            InterpolationMode::kNearest);
  EXPECT_EQ(MustBeForMask<RandomResizedCropSpec>(
                RandomResizedCropSpec{.interpolation =
                                          InterpolationMode::kNearestExact})
                .interpolation,
            InterpolationMode::kNearestExact);
}

TEST(MaskTransformTest, OtherGeometryAndNumbersStayAsTheyAre) {
  TransformSpec crop = RandomCropSpec{.height = 4, .width = 5, .fill = {255}};
  crop.draw_id = 7;
  const auto result = ForMask(crop);
  ASSERT_THAT(result.status(), IsOk());
  EXPECT_EQ(result->draw_id, 7u);
  EXPECT_EQ(std::get<RandomCropSpec>(result->op).fill, std::vector<float>{255});
  EXPECT_THAT(ForMask(ToDtypeSpec{}).status(), IsOk());
  EXPECT_THAT(ForMask(NormalizeSpec{}).status(), IsOk());
}

TEST(MaskTransformTest, ColourErasingAndBatchOpsAreRefusedByName) {
  const std::vector<TransformSpec> refused = {
      ColorJitterSpec{}, AdjustHueSpec{},     GaussianBlurSpec{},
      EqualizeSpec{},    RandomErasingSpec{}, CutoutSpec{},
      EraseSpec{},       MixUpSpec{},         CutMixSpec{},
  };
  for (const TransformSpec& transform : refused) {
    EXPECT_THAT(ForMask(transform).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(TransformName(transform)),
                               HasSubstr("mask"), HasSubstr("geometry"))));
  }
}

TEST(MaskTransformTest, GroupsAreLookedInto) {
  const auto group =
      MustBeForMask<RandomApplySpec>(RandomApplySpec{{RandomApplySpec{
          {RotateSpec{.interpolation = InterpolationMode::kBilinear}}}}});
  const auto& inner = std::get<RandomApplySpec>(group.transforms[0].op);
  EXPECT_EQ(std::get<RotateSpec>(inner.transforms[0].op).interpolation,
            InterpolationMode::kNearest);
  EXPECT_THAT(
      ForMask(RandomApplySpec{{RotateSpec{}, InvertSpec{}}}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Invert")));
}

}  // namespace
}  // namespace datasetd
