// For every line of standard input, a Pipeline as JSON, one line: the hash of
// the specs that the daemon makes of it, or "error: " and why there are none.

#include <google/protobuf/util/json_util.h>

#include <iostream>
#include <string>
#include <vector>

#include "datasetd/v1/transform.pb.h"
#include "server/pipeline/transforms_hash.h"
#include "server/service/transform_convert.h"

namespace datasetd {
namespace {

std::string HashOrError(const std::string& json) {
  v1::Pipeline pipeline;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(json, &pipeline);
  if (!parsed.ok()) return "error: " + std::string(parsed.message());
  auto specs = TransformsFromProto(pipeline.transforms(), "transforms");
  if (!specs.ok()) return "error: " + std::string(specs.status().message());
  const std::vector<FieldPipeline> fields = {
      {.field = "image", .transforms = *std::move(specs)}};
  return TransformsHash(fields);
}

}  // namespace
}  // namespace datasetd

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << datasetd::HashOrError(line) << "\n";
  }
}
