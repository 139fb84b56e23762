#include "server/load/load_request.h"

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SetOptions;
using ::datasetd::testing::SpecOf;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::MatchesRegex;

constexpr char kCrop[] =
    "pretransforms { key: 'image' value {"
    "  transforms { center_crop { height: 2 width: 2 } } } }";

TEST(LoadRequestTest, OnlyThePathIsChanged) {
  const v1::DatasetSpec expected = With(NamedSpec("a"), "device: 'each'");
  v1::DatasetSpec spec = expected;
  spec.set_path("/data//./a/");
  const auto request = CheckRequest(spec);
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->spec->SerializeAsString(), expected.SerializeAsString());
}

TEST(LoadRequestTest, PretransformsGetTheirDefaultsInACopy) {
  const v1::DatasetSpec spec =
      With(NamedSpec("a"),
           "pretransforms { key: 'x' value { transforms { resize {"
           "  shorter_edge: 8 } } } }");
  const auto request = CheckRequest(spec);
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->spec->SerializeAsString(), spec.SerializeAsString());
  EXPECT_FALSE(
      spec.pretransforms().at("x").transforms(0).resize().has_antialias());
  EXPECT_TRUE(request->pretransforms.at("x")[0].resize().antialias());
}

TEST(LoadRequestTest, WhatIsWrongIsNamed) {
  const std::string long_device = "device: '" + std::string(257, 'd') + "'";
  const std::string many_classes =
      "class_names: '" + std::string(70'000, 'c') + "'";
  const std::pair<const char*, const char*> changes[] = {
      {"bad_samples: 9",
       "bad_samples: 9 is unknown; one of fail, skip, replace"},
      {"residency: -1",
       "residency: -1 is unknown; one of device, pinned, split, auto, mapped"},
      {"device_bytes: 18446744073709551615",
       "device_bytes: 18446744073709551615 is out of range; at most "
       "9223372036854775807"},
      {"pretransforms { key: 'x' value { transforms {} } }",
       "field 'x', pretransforms[0] (none): unknown transform; this daemon may "
       "be older than the client"},
      {"class_names: ['a', 'b', 'a']", "class_names: 'a' is there twice"},
      {"class_names: ['a', '']", "class_names: '' is empty"},
      {"class_names: '\\377'", "class_names: '\\xff' is not UTF-8"},
      {"ignore_other_classes: true",
       "ignore_other_classes: no class names are given (classes=)"},
      {many_classes.c_str(),
       "spec: has 70023 bytes with its options, pretransforms and class names, "
       "expected at most 65536"},
      {long_device.c_str(), "device: has 257 bytes, expected at most 256"}};
  for (const auto& [change, message] : changes) {
    EXPECT_THAT(CheckRequest(With(NamedSpec("a"), change)),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

v1::DatasetSpec Spec() {
  return SpecOf("raw", "/data/a", "train", {{"shape", "4,4,3"}});
}

SourceInfo Source() {
  SourceInfo source;
  source.files = {
      {.path = "/data/a/0", .size_bytes = 10, .mtime_nanoseconds = 5},
      {.path = "/data/a/1", .size_bytes = 11, .mtime_nanoseconds = 6}};
  return source;
}

std::string IdOf(v1::DatasetSpec spec, const std::string& device = "cpu",
                 const SourceInfo& source = Source()) {
  if (spec.name().empty()) spec.set_name("a");
  return SpecId(CheckRequest(std::move(spec)).value(), device, source);
}

TEST(SpecIdTest, WhatIsReadAndHowChangesIt) {
  std::set<std::string> ids;
  for (const char* const change :
       {"", "format: 'npy'", "path: '/data/b'", "split: 'test'",
        "options { key: 'shape' value: '4,4,1' }",
        "options { key: 'header' value: '1' }",
        "bad_samples: BAD_SAMPLE_POLICY_SKIP",
        "bad_samples: BAD_SAMPLE_POLICY_SKIP max_bad_samples: 3",
        "residency: RESIDENCY_AUTO", "class_names: 'a'",
        "class_names: ['a', 'b']", "class_names: ['b', 'a']",
        "class_names: 'a' ignore_other_classes: true", kCrop}) {
    const std::string id = IdOf(With(Spec(), change));
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{64}"));
    EXPECT_TRUE(ids.insert(id).second) << change;
  }
  EXPECT_TRUE(ids.insert(IdOf(Spec(), "cuda:0")).second);
  using Change = void (*)(SourceInfo&);
  for (const Change change :
       {Change([](SourceInfo& source) { source.files.pop_back(); }),
        Change([](SourceInfo& source) { source.files[0].path = "/0"; }),
        Change([](SourceInfo& source) { source.files[0].size_bytes = 9; }),
        Change([](SourceInfo& s) { s.files[1].mtime_nanoseconds = 7; })}) {
    SourceInfo source = Source();
    change(source);
    EXPECT_TRUE(ids.insert(IdOf(Spec(), "cpu", source)).second);
  }
}

// The id has the devices that were found, not the text of the request.
TEST(SpecIdTest, NameAndLimitsThatDoNotBindLeaveItAlone) {
  const std::string id = IdOf(Spec());
  for (const char* const change :
       {"name: 'b'", "max_bad_samples: 3", "device: 'each'",
        "bad_samples: BAD_SAMPLE_POLICY_FAIL residency: RESIDENCY_DEVICE"}) {
    EXPECT_EQ(IdOf(With(Spec(), change)), id) << change;
  }
}

// Ids that the version before computed. Caches of earlier daemons use them.
TEST(SpecIdTest, IdsStay) {
  const struct {
    const char* spec;
    const char* device;
    const char* id;
  } goldens[] = {
      {"format: 'raw' path: '/data/a/b' split: 'train'"
       "options { key: 'shape' value: '4x4x3' }"
       "options { key: 'dtype' value: 'uint8' }"
       "options { key: 'label' value: 'last' }",
       "cpu",
       "f0b7fa217ac4dca03448c73b7c2961dc728e77b3a7dfccc81c89cb739a05c58b"},
      {"format: 'image_folder' path: '/data/a' residency: RESIDENCY_SPLIT "
       "device_bytes: 4096 bad_samples: BAD_SAMPLE_POLICY_SKIP",
       "cuda:0",
       "630420d61a1686960e68d1c9630ee431cb7dad788edbc4d9a991ecd47f64f78d"},
      {"format: 'image_folder' path: '/data/a' "
       "bad_samples: BAD_SAMPLE_POLICY_REPLACE max_bad_samples: 0 "
       "pretransforms { key: 'mask' value {"
       "  transforms { center_crop { height: 8 width: 8 } } } }"
       "pretransforms { key: 'image' value {"
       "  transforms { resize { shorter_edge: 32 } }"
       "  transforms { center_crop { height: 24 width: 24 } } } }"
       "pretransforms { key: 'label' value {} }",
       "cuda:0",
       "310846c6cd0965fb898504f8603a2020627719ab0cd83b5736516803b72167cc"},
      {"format: 'npy' path: '/data/a' device: 'each' max_bad_samples: 7 "
       "bad_samples: BAD_SAMPLE_POLICY_FAIL residency: RESIDENCY_DEVICE",
       "cuda:0,cuda:1",
       "82cee5340529654d2dd38b9d386eaa957381b3c65d918ae895c0ae1fb742f301"}};
  for (const auto& [spec, device, id] : goldens) {
    EXPECT_EQ(IdOf(With({}, spec), device), id) << spec;
  }
}

TEST(SpecIdTest, AnOptionsEndIsNotAnothersBegin) {
  v1::DatasetSpec first = Spec();
  SetOptions(first, {{"a", "1\n1:b=1:2"}});
  v1::DatasetSpec second = Spec();
  SetOptions(second, {{"a", "1"}, {"b", "2"}});
  EXPECT_NE(IdOf(first), IdOf(second));
}

TEST(SpecIdTest, APathsEndIsNotAnothersBegin) {
  EXPECT_NE(IdOf(SpecOf("raw", "/data/a\ntrain", "")),
            IdOf(SpecOf("raw", "/data/a", "train\n")));
}

TEST(SpecIdTest, APushIsItsNameContentAndUser) {
  const std::string id = PushedSpecId("a", "00ff", 1000);
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(PushedSpecId("a", "00ff", 1000), id);
  EXPECT_NE(PushedSpecId("b", "00ff", 1000), id);
  EXPECT_NE(PushedSpecId("a", "00fe", 1000), id);
  EXPECT_NE(PushedSpecId("a", "00ff", 1001), id);
}

}  // namespace
}  // namespace datasetd
