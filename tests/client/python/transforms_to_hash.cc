// For every line of standard input, a Pipeline as JSON, one line: the hash of
// its transforms as the daemon has them, or "error: " and why there are none.

#include <google/protobuf/util/json_util.h>

#include <iostream>
#include <string>
#include <vector>

#include "server/pipeline/ops/transform.h"
#include "server/pipeline/transforms_hash.h"

namespace datasetd {
namespace {

std::string HashOrError(const std::string& json) {
  v1::Pipeline pipeline;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(json, &pipeline);
  if (!parsed.ok()) return "error: " + std::string(parsed.message());
  auto transforms = CompleteTransforms(pipeline.transforms(), "transforms");
  if (!transforms.ok()) {
    return "error: " + std::string(transforms.status().message());
  }
  const std::vector<FieldPipeline> fields = {
      {.field = "image", .transforms = *std::move(transforms)}};
  return TransformsHash(fields);
}

}  // namespace
}  // namespace datasetd

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << datasetd::HashOrError(line) << "\n";
  }
}
