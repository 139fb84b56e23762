#include "server/config/yaml_to_proto.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "datasetd/v1/server.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::Config Parse(const std::string& yaml) {
  v1::Config config;
  const absl::Status status = YamlToProto(yaml, "test.yaml", &config);
  EXPECT_TRUE(status.ok()) << status;
  return config;
}

v1::Config FromText(const std::string& text) {
  v1::Config config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

bool Equal(const v1::Config& a, const v1::Config& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

std::string ErrorOf(const std::string& yaml) {
  v1::Config config;
  const absl::Status status = YamlToProto(yaml, "test.yaml", &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
      << yaml << ": " << status;
  return std::string(status.message());
}

TEST(YamlToProtoTest, MapsEveryKindOfField) {
  const v1::Config config = Parse(R"(# A comment.
socket_path: /run/x.sock
socket_mode: 0660
devices: ["cuda:0", cpu]
memory_budget_mib: 4096
data_roots:
  - /data
  - '/scratch/my data'
drain_timeout: 1m30s
attach_timeout: 1500ms
log_levels: {attach: debug, load: "off"}
datasets:
  - name: train
    format: npy
    path: /data/n
    options: {images: "a,-b"}
    pretransforms:
      image:
        transforms:
          - pad: {padding: {left: 1, top: 2}, fill: [0.5, 1e3], padding_mode: reflect}
          - resize: {shorter_edge: 8, interpolation: nearest-exact}
          - to_dtype: {dtype: float16, scale: true}
          - to_dtype: {dtype: DTYPE_FLOAT32}
          - normalize: {mean: [.5], std: [1]}
          - alternating_flip:
          - random_horizontal_flip: {p: 0.25}
)");
  EXPECT_TRUE(Equal(config, FromText(R"(
socket_path: "/run/x.sock"
socket_mode: "0660"
devices: ["cuda:0", "cpu"]
memory_budget_mib: 4096
data_roots: ["/data", "/scratch/my data"]
drain_timeout { seconds: 90 }
attach_timeout { seconds: 1 nanos: 500000000 }
log_levels { key: "attach" value: "debug" }
log_levels { key: "load" value: "off" }
datasets {
  name: "train"
  format: "npy"
  path: "/data/n"
  options { key: "images" value: "a,-b" }
  pretransforms {
    key: "image"
    value {
      transforms { pad { padding { left: 1 top: 2 } fill: [0.5, 1000]
                         padding_mode: PADDING_MODE_REFLECT } }
      transforms { resize { shorter_edge: 8
                            interpolation: INTERPOLATION_MODE_NEAREST_EXACT } }
      transforms { to_dtype { dtype: DTYPE_FLOAT16 scale: true } }
      transforms { to_dtype { dtype: DTYPE_FLOAT32 } }
      transforms { normalize { mean: 0.5 std: 1 } }
      transforms { alternating_flip {} }
      transforms { random_horizontal_flip { p: 0.25 } }
    }
  }
})"))) << config.DebugString();
}

TEST(YamlToProtoTest, TheDescriptorDecidesWhatAScalarIs) {
  for (const char* text : {"0660", "1e3", "true", "null_", "~x", "1.0"}) {
    EXPECT_EQ(Parse(absl::StrCat("socket_mode: ", text)).socket_mode(), text);
  }
  EXPECT_EQ(Parse("socket_mode: 'null'").socket_mode(), "null");
}

TEST(YamlToProtoTest, KeysWithoutValueAndEmptyFilesSetNothing) {
  for (const char* yaml : {"", "\n# nothing\n", "---\n", "data_roots:\n",
                           "socket_path: ~\n", "datasets: []\n"}) {
    EXPECT_TRUE(Equal(Parse(yaml), v1::Config())) << yaml;
  }
}

TEST(YamlToProtoTest, UnknownKeysAreErrorsWithLineAndKnownKeys) {
  EXPECT_THAT(ErrorOf("socket_path: /a\n\nsocket_paht: /b\n"),
              AllOf(HasSubstr("test.yaml: line 3: unknown key 'socket_paht'; "
                              "known keys: socket_path, socket_mode"),
                    HasSubstr("max_feeds")));
  EXPECT_THAT(ErrorOf("datasets:\n- name: a\n  foo: 1\n"),
              HasSubstr("test.yaml: line 3: unknown key 'foo' in datasets[0]; "
                        "known keys: name, format, path, split, device, "
                        "pretransforms, options"));
  EXPECT_THAT(
      ErrorOf("datasets:\n- name: a\n- pretransforms:\n    image:\n      "
              "transforms:\n      - blur: {}\n"),
      AllOf(HasSubstr("line 6: unknown key 'blur' in "
                      "datasets[1].pretransforms.image.transforms[0]"),
            HasSubstr("random_crop")));
}

TEST(YamlToProtoTest, ValuesOfTheWrongKindAreNamed) {
  struct {
    const char* yaml;
    const char* message;
  } cases[] = {
      {"- a\n", "line 1: the file must be a mapping of keys"},
      {"just text", "line 1: the file must be a mapping of keys"},
      {"\ndata_roots: /data", "line 2: data_roots must be a list"},
      {"data_roots: {a: b}", "data_roots must be a list"},
      {"data_roots: [[a]]", "data_roots[0] must be one value"},
      {"data_roots: [a, ~]", "data_roots[1] has no value"},
      {"socket_path: [a]", "socket_path must be one value"},
      {"log_levels: debug", "log_levels must be a mapping"},
      {"log_levels: {a: [b]}", "log_levels.a must be one value"},
      {"datasets: [a]", "datasets[0] must be a mapping of keys: name"},
      {"memory_budget_mib: 4GiB",
       "memory_budget_mib is '4GiB', expected a whole number from 0 to "
       "18446744073709551615"},
      {"memory_budget_mib: -1", "is '-1'"},
      {"max_feeds: 4294967296", "from 0 to 4294967295"},
      {"drain_timeout: 5",
       "drain_timeout is '5', expected a duration with its "
       "unit"},
      {"drain_timeout: {seconds: 5}", "drain_timeout is no scalar"},
      {"drain_timeout: inf", "drain_timeout is 'inf'"},
      {"? [a]\n: b\n", "a key is no plain word"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.yaml), HasSubstr(c.message)) << c.yaml;
  }
}

TEST(YamlToProtoTest, TransformsAreChecked) {
  const std::string head =
      "datasets:\n- pretransforms:\n    image:\n      transforms:\n      - ";
  EXPECT_THAT(ErrorOf(head + "{center_crop: {}, pad: {}}"),
              HasSubstr("pad is given beside another"));
  EXPECT_THAT(ErrorOf(head + "to_dtype: {dtype: uint64}"),
              AllOf(HasSubstr("is 'uint64'"), HasSubstr("uint8, int16")));
  EXPECT_THAT(ErrorOf(head + "to_dtype: {dtype: unspecified}"),
              HasSubstr("is 'unspecified'"));
  EXPECT_THAT(ErrorOf(head + "to_dtype: {scale: yes}"),
              HasSubstr("expected true or false"));
  EXPECT_THAT(ErrorOf(head + "normalize: {mean: [.nan]}"),
              HasSubstr("mean[0] is '.nan', expected a number"));
  EXPECT_THAT(ErrorOf(head + "pad: {fill: [1e300]}"),
              HasSubstr("range of float32"));
}

TEST(YamlToProtoTest, DoubledKeysAndDocumentsAreErrors) {
  EXPECT_THAT(ErrorOf("socket_path: /a\nsocket_path: /b\n"),
              HasSubstr("line 2: key 'socket_path' is given twice"));
  EXPECT_THAT(ErrorOf("log_levels: {a: x, a: y}"),
              HasSubstr("key 'a' in log_levels is given twice"));
  EXPECT_THAT(ErrorOf("socket_path: /a\n---\nsocket_path: /b\n"),
              HasSubstr("line 2: another document"));
}

TEST(YamlToProtoTest, WhatIsNoYamlIsAnErrorWithItsLine) {
  EXPECT_THAT(ErrorOf("socket_path: /a\ndata_roots: [a, b\n"),
              HasSubstr("test.yaml: line 3: not valid YAML"));
  EXPECT_THAT(ErrorOf("a: *b"), HasSubstr("not valid YAML"));
  EXPECT_THAT(ErrorOf("\tsocket_path: x\n:"), HasSubstr("test.yaml: "));
}

TEST(YamlToProtoTest, TextBehindTheDocumentEndsTheParser) {
  // YAML::LoadAll loops on these, and takes memory without end.
  EXPECT_THAT(ErrorOf(",t"), HasSubstr("another document"));
  EXPECT_FALSE(ErrorOf("{},t").empty());
  EXPECT_FALSE(ErrorOf("socket_path: /a\n]").empty());
}

TEST(YamlToProtoTest, OnlyUtf8WithoutNulIsText) {
  EXPECT_EQ(Parse("socket_group: '\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80'")
                .socket_group(),
            "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  for (const char* bad :
       {"\xff\xfe", "\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("\nsocket_group: ", bad)),
                HasSubstr("line 2: not UTF-8 text, at offset 15"));
  }
  EXPECT_THAT(ErrorOf(std::string("a\0b", 3)), HasSubstr("at offset 1"));
  EXPECT_THAT(ErrorOf("socket_path: \"/a\\0b\""), HasSubstr("holds a NUL"));
  EXPECT_THAT(ErrorOf("socket_group: \"\\ud800\""),
              HasSubstr("not valid YAML"));
}

TEST(YamlToProtoTest, LargeAndExplodingInputsAreRefused) {
  EXPECT_THAT(ErrorOf("#" + std::string(1 << 20, 'x')),
              HasSubstr("1048577 bytes, expected at most 1048576"));
  EXPECT_FALSE(ErrorOf(std::string(100'000, '[')).empty());
  std::string bomb =
      "datasets:\n- &d\n  pretransforms:\n    a: &p\n"
      "      transforms: [&t {pad: {}}";
  for (int i = 0; i < 400; ++i) bomb += ", *t";
  bomb += "]\n";
  for (int i = 0; i < 400; ++i) bomb += "    f" + std::to_string(i) + ": *p\n";
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("more than 100000 values"));
  EXPECT_FALSE(ErrorOf("datasets: &d [*d]").empty());
}

}  // namespace
}  // namespace datasetd
