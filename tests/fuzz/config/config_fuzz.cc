// Input: the text of a configuration file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto config = datasetd::ParseConfig(
      absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!config.ok()) {
    if (config.status().code() != absl::StatusCode::kInvalidArgument) abort();
    return 0;
  }
  datasetd::ApplyDefaults(&*config);
  const absl::Status status = datasetd::ValidateConfig(*config);
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) {
    abort();
  }
  // A config from YAML can be sent: protobuf's parser checks strings for UTF-8.
  datasetd::v1::Config copy;
  if (!copy.ParseFromString(config->SerializeAsString())) abort();
  return 0;
}
