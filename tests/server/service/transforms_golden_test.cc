// The hashes of many transforms, as versions before had them: states of jobs
// that are resumed hold them.

#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "datasetd/v1/transform.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/pipeline/transforms_hash.h"
#include "server/service/transform_convert.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

// A line: the hash of a feed of the field "image" with this one transform in
// protobuf's text format.
constexpr char kFile[] = "tests/server/service/transforms_golden.txt";

std::string HashOf(const std::string& text) {
  v1::Pipeline pipeline;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      text, pipeline.add_transforms()))
      << text;
  const auto transforms =
      TransformsFromProto(pipeline.transforms(), "transforms");
  EXPECT_THAT(transforms.status(), testing::IsOk()) << text;
  if (!transforms.ok()) return "";
  return TransformsHash({{.field = "image", .transforms = *transforms}});
}

TEST(TransformsGoldenTest, HashesAreThoseOfEarlierVersions) {
  std::ifstream file(kFile);
  ASSERT_TRUE(file.is_open());
  std::set<std::string> ops;
  std::string hash;
  std::string text;
  while (file >> hash && std::getline(file, text)) {
    EXPECT_EQ(HashOf(text), hash) << text;
    ops.insert(text.substr(0, text.find('{')));
  }
  EXPECT_EQ(ops.size(), 44u);
}

}  // namespace
}  // namespace datasetd
