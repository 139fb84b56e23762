// The hashes of many transforms, as versions before had them: states of jobs
// that are resumed hold them.

#include <fstream>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "server/pipeline/transforms_hash.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

// A line: the hash of a feed of the field "image" with this one transform.
constexpr char kFile[] = "tests/server/pipeline/transforms_golden.txt";

TEST(TransformsGoldenTest, HashesAreThoseOfEarlierVersions) {
  std::ifstream file(kFile);
  ASSERT_TRUE(file.is_open());
  std::set<std::string> ops;
  std::string hash;
  std::string text;
  while (file >> hash && std::getline(file, text)) {
    EXPECT_EQ(TransformsHash({{.field = "image", .transforms = {Op(text)}}}),
              hash)
        << text;
    ops.insert(text.substr(0, text.find('{')));
  }
  EXPECT_EQ(ops.size(), 58u);
}

}  // namespace
}  // namespace datasetd
