#include "server/pipeline/transforms_hash.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;
using ::datasetd::testing::WithDrawId;
using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

std::string HashOf(Transforms ops, Layout layout = Layout::kNchw,
                   std::string name = "image") {
  const std::vector<FieldPipeline> pipelines = {
      {std::move(name), std::move(ops), layout}};
  return TransformsHash(pipelines);
}

TEST(TransformsHashTest, IsStable) {
  // A change here breaks resuming from a checkpoint.
  EXPECT_EQ(
      HashOf({Op("random_crop { height: 32 width: 32 padding { left: 4 top: 4 "
                 "right: 4 bottom: 4 } padding_mode: PADDING_MODE_REFLECT }"),
              Op("random_horizontal_flip {}"),
              Op("to_dtype { dtype: DTYPE_FLOAT16 scale: true }"),
              Op("normalize { mean: [0.5, 0.25, 0.125] std: 0.2 }")},
             Layout::kNhwc),
      "3fc3f4a8cf3d891758a2b39aab519f8a623370eaca376eb2827603b9b02c1bd5");
}

// Texts of messages that set no field, one or two, also in the messages of
// parameters.
std::vector<std::string> MessageTexts(const Descriptor& type);

// Values that no default is. Digits of 1 and 11 could run together: "1 11".
std::vector<std::string> Values(const FieldDescriptor& field) {
  if (field.message_type() == v1::Transform::descriptor()) {
    return {"{ pad {} }", "{ pad { fill: 1 } }", "[{ pad {} }, { pad {} }]"};
  }
  if (field.is_repeated()) return {"1", "[1, 2]", "[2, 1]"};
  std::vector<std::string> values;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {"false", "true"};
    case FieldDescriptor::CPPTYPE_STRING:
      return {"'fine'", "'coarse'"};
    case FieldDescriptor::CPPTYPE_ENUM:
      for (int i = 1; i < field.enum_type()->value_count(); ++i) {
        values.push_back(field.enum_type()->value(i)->name());
      }
      return values;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      for (const std::string& text : MessageTexts(*field.message_type())) {
        // A size of 0 x 0 is none.
        if (text.empty() && field.message_type() == v1::Size::descriptor()) {
          continue;
        }
        values.push_back(absl::StrCat("{ ", text, "}"));
      }
      return values;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return {"0.25"};
    default:
      return {"1", "11"};
  }
}

std::vector<std::string> MessageTexts(const Descriptor& type) {
  std::vector<std::string> texts = {""};
  std::vector<std::string> others;  // each field before, by itself
  for (int i = 0; i < type.field_count(); ++i) {
    std::vector<std::string> fields;
    for (const std::string& value : Values(*type.field(i))) {
      fields.push_back(absl::StrCat(type.field(i)->name(), ": ", value, " "));
      texts.push_back(fields.back());
      for (const std::string& other : others) {
        texts.push_back(absl::StrCat(other, fields.back()));
      }
    }
    others.insert(others.end(), fields.begin(), fields.end());
  }
  return texts;
}

// The text of an op, without parameters that have no effect by their options,
// and without the name of its noise, whose content states have.
std::string Effect(v1::Transform transform) {
  if (transform.has_add_noise()) transform.mutable_add_noise()->clear_noise();
  const FieldDescriptor& op_field =
      *v1::Transform::descriptor()->FindFieldByNumber(transform.op_case());
  Message* const op =
      transform.GetReflection()->MutableMessage(&transform, &op_field);
  const Reflection& values = *op->GetReflection();
  for (int i = 0; i < op_field.message_type()->field_count(); ++i) {
    const FieldDescriptor& field = *op_field.message_type()->field(i);
    const v1::ParameterOptions& options =
        field.options().GetExtension(v1::parameter);
    if (options.used_with().empty()) continue;
    const int value = values.GetEnumValue(
        *op, op_field.message_type()->FindFieldByName(options.used_with()));
    const auto& used = options.used_values();
    if (std::find(used.begin(), used.end(), value) == used.end()) {
      values.ClearField(op, &field);
    }
  }
  return transform.ShortDebugString();
}

// Hashes are equal where ops have the same effect, and nowhere else.
TEST(TransformsHashTest, EveryParameterCounts) {
  std::map<std::string, std::string> effects;  // by hash
  std::map<std::string, std::string> hashes;   // by effect
  const auto& ops = *v1::Transform::descriptor()->FindOneofByName("op");
  for (int i = 0; i < ops.field_count(); ++i) {
    for (const std::string& text :
         MessageTexts(*ops.field(i)->message_type())) {
      for (const uint32_t draw_id : {0, 1}) {
        const v1::Transform op = WithDrawId(
            Op(absl::StrCat(ops.field(i)->name(), " { ", text, "}")), draw_id);
        // Both are refused.
        if (op.random_erasing().is_value_random() &&
            !op.random_erasing().value().empty()) {
          continue;
        }
        const std::string effect = Effect(op);
        const std::string hash = HashOf({op});
        ASSERT_EQ(effects.try_emplace(hash, effect).first->second, effect);
        ASSERT_EQ(hashes.try_emplace(effect, hash).first->second, hash)
            << effect;
      }
    }
  }
}

TEST(TransformsHashTest, OpsTheirOrderAndTheFieldCount) {
  const v1::Transform pad = Op("pad {}");
  const v1::Transform flip = Op("random_vertical_flip {}");
  const std::vector<std::string> hashes = {
      TransformsHash({}),
      HashOf({}),
      HashOf({}, Layout::kNhwc),
      HashOf({}, Layout::kNchw, "mask"),
      HashOf({pad}),
      HashOf({pad, pad}),
      HashOf({pad, flip}),
      HashOf({flip, pad}),
      HashOf({Op("random_apply { transforms { pad {} } }"), pad}),
      HashOf(
          {Op("random_apply { transforms { pad {} } transforms { pad {} } }")}),
      // All bits of what the host computes with.
      HashOf({Op("rotate { angle: 1 }")}),
      HashOf({Op("rotate { angle: $0 }", 1 + 1e-12)}),
  };
  const std::set<std::string> distinct(hashes.begin(), hashes.end());
  EXPECT_EQ(distinct.size(), hashes.size());
  for (const std::string& hash : hashes) {
    EXPECT_THAT(hash, ::testing::MatchesRegex("[0-9a-f]{64}"));
  }
}

TEST(TransformsHashTest, FieldsAreKeptApart) {
  const std::vector<FieldPipeline> a = {{"a", {Op("pad {}")}}, {"b", {}}};
  const std::vector<FieldPipeline> b = {{"a", {}}, {"b", {Op("pad {}")}}};
  const std::vector<FieldPipeline> swapped = {{"b", {}}, {"a", {Op("pad {}")}}};
  EXPECT_NE(TransformsHash(a), TransformsHash(b));
  EXPECT_NE(TransformsHash(a), TransformsHash(swapped));
  // A name that looks like the canonical text of two fields.
  const std::vector<FieldPipeline> two = {{"a", {}}, {"b", {}}};
  const std::vector<FieldPipeline> one = {{"a NCHW\nfield 1 b", {}}};
  EXPECT_NE(TransformsHash(two), TransformsHash(one));
}

TEST(TransformsHashTest, AnEdgeThatFadesOutIsNoFillOfZero) {
  for (const char* op : {"rotate", "random_rotation", "affine", "random_affine",
                         "random_perspective", "rand_augment",
                         "trivial_augment_wide", "auto_augment"}) {
    const auto hash_of = [&](const char* mode, const char* fill) {
      return HashOf(
          {Op(absl::StrCat(op, " { interpolation: INTERPOLATION_MODE_", mode,
                           " ", fill, " }"))});
    };
    EXPECT_NE(hash_of("BILINEAR", ""), hash_of("BILINEAR", "fill: 0")) << op;
    EXPECT_EQ(hash_of("NEAREST", ""), hash_of("NEAREST", "fill: 0")) << op;
  }
}

TEST(TransformsHashTest, WaysToSayTheSameAreEqual) {
  EXPECT_EQ(HashOf({Op("pad {}")}), HashOf({Op("pad { fill: 0 }")}));
  EXPECT_EQ(HashOf({Op("pad {}")}), HashOf({Op("pad { fill: [0, 0, -0.0] }")}));
  EXPECT_EQ(HashOf({Op("pad { padding_mode: PADDING_MODE_EDGE }")}),
            HashOf({Op("pad { fill: 9 padding_mode: PADDING_MODE_EDGE }")}));
  EXPECT_EQ(HashOf({Op("normalize { mean: [0.5, 0.5, 0.5] std: 0.1 }")}),
            HashOf({Op("normalize { mean: 0.5 std: [0.1, 0.1, 0.1] }")}));
  EXPECT_EQ(HashOf({Op("rotate { angle: 0.0 }")}),
            HashOf({Op("rotate { angle: -0.0 fill: [0, 0, 0] }")}));
  EXPECT_EQ(
      HashOf({Op("resize { interpolation: INTERPOLATION_MODE_NEAREST }")}),
      HashOf({Op("resize { interpolation: INTERPOLATION_MODE_NEAREST "
                 "antialias: false }")}));
}

}  // namespace
}  // namespace datasetd
