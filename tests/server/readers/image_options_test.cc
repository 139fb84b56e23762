#include "server/readers/images/image_options.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::SpecOf;
using ::datasetd::testing::SpecOptions;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::DatasetSpec Spec(const SpecOptions& options) {
  return SpecOf("image_folder", "/x", "", options);
}

TEST(ImageOptionsTest, TheDefaultsAreThoseOfTorchvision) {
  const auto options = ParseImageOptions(Spec({}));
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->channels, 3);
  EXPECT_FALSE(options->apply_exif);
  EXPECT_FALSE(options->fast_decode);
  EXPECT_EQ(options->max_pixels, 89'478'485);
}

TEST(ImageOptionsTest, EveryOptionIsRead) {
  const auto options = ParseImageOptions(Spec({{"channels", "as_is"},
                                               {"apply_exif", "true"},
                                               {"fast_decode", "1"},
                                               {"max_pixels", "100"},
                                               {"another", "reader's"}}));
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->channels, 0);
  EXPECT_TRUE(options->apply_exif);
  EXPECT_TRUE(options->fast_decode);
  EXPECT_EQ(options->max_pixels, 100);
  EXPECT_EQ(ParseImageOptions(Spec({{"channels", "1"}}))->channels, 1);
}

TEST(ImageOptionsTest, WrongValuesAreNamedWithWhatIsExpected) {
  for (const auto& [name, value] :
       {std::pair("channels", "2"), std::pair("channels", "rgb"),
        std::pair("channels", ""), std::pair("apply_exif", "maybe"),
        std::pair("fast_decode", "2"), std::pair("max_pixels", "0"),
        std::pair("max_pixels", "-5"), std::pair("max_pixels", "536870912"),
        std::pair("max_pixels", "99999999999999999999")}) {
    EXPECT_THAT(ParseImageOptions(Spec({{name, value}})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name), HasSubstr(value),
                               HasSubstr("expected"))));
  }
}

}  // namespace
}  // namespace datasetd
