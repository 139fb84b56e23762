#include "server/pipeline/ops/transform.h"

#include <google/protobuf/util/json_util.h>

#include <functional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/transforms_hash.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::Op;
using ::datasetd::testing::StatusIs;
using ::google::protobuf::FieldDescriptor;
using ::testing::HasSubstr;

absl::StatusOr<Transforms> Complete(const std::string& list) {
  v1::Pipeline pipeline;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      absl::StrCat("{\"transforms\": ", list, "}"), &pipeline);
  EXPECT_TRUE(parsed.ok()) << std::string(parsed.message());
  return CompleteTransforms(pipeline.transforms(), "transforms");
}

// The only transform of the list, with its defaults.
v1::Transform One(const std::string& list) {
  const auto transforms = Complete(list);
  EXPECT_THAT(transforms.status(), IsOk());
  return transforms.ok() ? transforms->at(0) : v1::Transform();
}

// A message of 4 MiB has a million; completed they took 8 s and 760 MB.
TEST(TransformTest, TooManyAreRefusedBeforeTheyAreCompleted) {
  v1::Pipeline pipeline;
  auto& outer = *pipeline.mutable_transforms();
  while (outer.size() < kMaxTransforms - 1) outer.Add()->mutable_pad();
  auto& inner = *outer.Add()->mutable_random_apply()->mutable_transforms();
  EXPECT_THAT(CompleteTransforms(outer, "transforms").status(), IsOk());
  inner.Add();  // It would be refused itself.
  EXPECT_THAT(CompleteTransforms(outer, "transforms"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("transforms: 257 transforms")));
}

TEST(TransformTest, DefaultsAreTorchvisions) {
  EXPECT_EQ(One(R"([{"random_grayscale": {}}])").random_grayscale().p(), 0.1);
  EXPECT_EQ(One(R"([{"random_invert": {}}])").random_invert().p(), 0.5);
  EXPECT_EQ(One(R"([{"random_equalize": {"p": 0}}])").random_equalize().p(),
            0.0);
  EXPECT_EQ(One(R"([{"grayscale": {}}])").grayscale().num_output_channels(),
            1u);
  const v1::RandomResizedCrop crop =
      One(R"([{"random_resized_crop": {}}])").random_resized_crop();
  EXPECT_EQ(crop.scale().min(), 0.08);
  EXPECT_EQ(crop.scale().max(), 1.0);
  EXPECT_EQ(crop.ratio().min(), 3.0 / 4.0);
  EXPECT_EQ(crop.ratio().max(), 4.0 / 3.0);
  EXPECT_EQ(crop.interpolation(), v1::INTERPOLATION_MODE_BILINEAR);
  EXPECT_TRUE(crop.antialias());
  EXPECT_FALSE(
      One(R"([{"resize": {"antialias": false}}])").resize().antialias());
  EXPECT_EQ(One(R"([{"random_affine": {}}])").random_affine().interpolation(),
            v1::INTERPOLATION_MODE_NEAREST);
  EXPECT_FALSE(One(R"([{"random_affine": {}}])").random_affine().has_scale());
  EXPECT_EQ(One(R"([{"affine": {}}])").affine().scale(), 1.0);
  EXPECT_EQ(One(R"([{"pad": {}}])").pad().padding_mode(),
            v1::PADDING_MODE_CONSTANT);
  const v1::RandomErasing erasing =
      One(R"([{"random_erasing": {}}])").random_erasing();
  EXPECT_EQ(erasing.scale().min(), 0.02);
  EXPECT_EQ(erasing.scale().max(), 0.33);
  EXPECT_EQ(erasing.ratio().max(), 3.3);
  EXPECT_EQ(One(R"([{"gaussian_blur": {}}])").gaussian_blur().sigma().max(),
            2.0);
  const v1::MixUp mix = One(R"([{"mix_up": {"num_classes": 2}}])").mix_up();
  EXPECT_EQ(mix.alpha(), 1.0);
  EXPECT_EQ(mix.labels(), "label");
}

TEST(TransformTest, DefaultsAreFilledInInsideGroups) {
  const v1::Transform group = One(
      R"([{"random_apply": {"p": 0.25, "transforms": [
             {"random_vertical_flip": {}, "draw_id": 3}, {"invert": {}}]},
           "draw_id": 2}])");
  EXPECT_EQ(group.draw_id(), 2u);
  EXPECT_EQ(group.random_apply().p(), 0.25);
  ASSERT_EQ(group.random_apply().transforms_size(), 2);
  const v1::Transform& flip = group.random_apply().transforms(0);
  EXPECT_EQ(flip.draw_id(), 3u);
  EXPECT_EQ(flip.random_vertical_flip().p(), 0.5);
}

TEST(TransformTest, ErrorsNameThePlaceAndTheParameter) {
  const auto expect = [](const std::string& list, const std::string& message) {
    EXPECT_THAT(Complete(list), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr(message)));
  };
  expect(R"([{"invert": {}}, {}])",
         "transforms[1] (none): unknown transform; this daemon may be older "
         "than the client");
  expect(R"([{"pad": {"padding_mode": 9}}])",
         "transforms[0] Pad: padding_mode is 9: it must be constant, edge, "
         "reflect or symmetric");
  expect(R"([{"resize": {"interpolation": 9}}])",
         "Resize: interpolation is 9: it must be nearest, nearest_exact, "
         "bilinear or bicubic");
  expect(R"([{"rotate": {"interpolation": "INTERPOLATION_MODE_BICUBIC"}}])",
         "Rotate: interpolation is bicubic: it must be nearest or bilinear");
  expect(R"([{"to_dtype": {}}])",
         "ToDtype: dtype is not set: it must be uint8, int16");
  expect(R"([{"invert": {}, "draw_id": 65536}])",
         "Invert: draw_id is 65536: it must be within 0..65535");
  expect(R"([{"random_apply": {"transforms": [{"invert": {}}, {}]}}])",
         "transforms[0] RandomApply: transforms[1] (none): unknown transform");
  expect(R"([{"grayscale": {"num_output_channels": 2}}])",
         "num_output_channels is 2: it must be 1 or 3");
  expect(R"([{"posterize": {"bits": 4294967295}}])",
         "bits is 4294967295: it must be within 0..8");
  expect(R"([{"crop": {"top": -2147483648}}])",
         "top is -2147483648: it must be within -1073741823..1073741823 "
         "pixels");
  expect(R"([{"pad": {"padding": {"left": 1073741824}}}])",
         "padding.left is 1073741824: it must be within 0..1073741823");
  expect(R"([{"adjust_hue": {"hue_factor": 0.51}}])",
         "hue_factor is 0.51: it must be within -0.5..0.5 turns");
  expect(R"([{"random_rotation": {"degrees": {"min": 2, "max": 1}}}])",
         "degrees goes from 2 to 1: the first must not be larger");
  expect(R"([{"rotate": {"center": {"x": "NaN"}}}])",
         "center is nan: it must be within");
  expect(R"([{"mix_up": {"alpha": 0}}])",
         "alpha is 0: it must be above 0, and finite");
  expect(R"([{"mix_up": {"alpha": "Infinity"}}])", "alpha is inf");
  expect(R"([{"normalize": {"mean": [0, 1e300]}}])",
         "mean is 1e+300 in channel 1: it must be a finite float32");
  expect(R"([{"random_resized_crop": {"ratio": {"min": 0, "max": 1}}}])",
         "ratio is 0: it must be within 1e-06..1000000");
}

TEST(TransformTest, ErrorsKeepTheirWordsInLists) {
  v1::Pipeline pipeline;
  *pipeline.add_transforms() = Op("random_invert { p: 2 }");
  EXPECT_THAT(
      CompleteTransforms(pipeline.transforms(), "field 'a', pretransforms"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "field 'a', pretransforms[0] RandomInvert: p is 2: it must be "
               "within 0..1"));
}

// ---- What transform.proto says of every op ----

void ForOps(const std::function<void(const FieldDescriptor&)>& check) {
  const auto& ops = *v1::Transform::descriptor()->FindOneofByName("op");
  for (int i = 0; i < ops.field_count(); ++i) {
    SCOPED_TRACE(ops.field(i)->name());
    check(*ops.field(i));
  }
}

TEST(TransformTest, EveryOpHasAFamilyAndAHash) {
  ForOps([](const FieldDescriptor& op) {
    const v1::Transform transform = Op(absl::StrCat(op.name(), " {}"));
    EXPECT_EQ(TransformName(transform), op.message_type()->name());
    EXPECT_NE(OptionsOf(transform).family(), v1::OP_FAMILY_UNSPECIFIED);
    EXPECT_EQ(TransformsHash({{"image", {transform}}}).size(), 64u);
  });
}

TEST(TransformTest, DefaultsAreWithinTheirRanges) {
  ForOps([](const FieldDescriptor& op) {
    const v1::Transform transform = Op(absl::StrCat(op.name(), " {}"));
    const absl::Status status = CheckTransform(transform);
    // These parameters must be given.
    if (op.name() == "to_dtype") {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("dtype is not set")));
    } else if (op.name() == "mix_up" || op.name() == "cut_mix") {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("num_classes is 0")));
    } else {
      EXPECT_THAT(status, IsOk());
    }
  });
}

TEST(TransformTest, RandomOpsAreThoseThatTorchvisionCallsSo) {
  ForOps([](const FieldDescriptor& op) {
    const std::string& name = op.message_type()->name();
    const bool is_random =
        OptionsOf(Op(absl::StrCat(op.name(), " {}"))).is_random();
    const std::set<std::string> others = {"AddNoise",
                                          "AlternatingFlip",
                                          "AutoAugment",
                                          "ColorJitter",
                                          "CutMix",
                                          "Cutout",
                                          "FrequencyMasking",
                                          "Gain",
                                          "GaussianBlur",
                                          "GaussianNoise",
                                          "MixUp",
                                          "RandAugment",
                                          "PolarityInversion",
                                          "Shift",
                                          "TimeMasking",
                                          "TrivialAugmentWide"};
    EXPECT_EQ(is_random, name.rfind("Random", 0) == 0 || others.contains(name));
  });
}

// Every number can be checked: it has a range, or its op checks it against the
// image.
TEST(TransformTest, EveryRealNumberHasARange) {
  ForOps([](const FieldDescriptor& op) {
    for (int i = 0; i < op.message_type()->field_count(); ++i) {
      const FieldDescriptor& field = *op.message_type()->field(i);
      const bool is_real =
          !field.is_repeated() &&
          (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
           field.message_type() == v1::Range::descriptor() ||
           field.message_type() == v1::Point::descriptor());
      if (!is_real || field.name() == "threshold") continue;
      const auto& options = field.options().GetExtension(v1::parameter);
      EXPECT_TRUE(options.has_above() ||
                  (options.has_min() && options.has_max()))
          << field.full_name();
    }
  });
}

}  // namespace
}  // namespace datasetd
