// Input: a manifest, as a file. If its first byte is 1, the rest is the
// message, and gets a right prefix.

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/manifest/manifest_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (!file.empty() && file[0] == 1) {
    const std::string message = file.substr(1);
    const uint32_t message_bytes = static_cast<uint32_t>(message.size());
    const uint64_t checksum = XXH3_64bits(message.data(), message.size());
    file = std::string("dsdmanif\1\0\0\0", 12);
    file.append(reinterpret_cast<const char*>(&message_bytes), 4);
    file.append(reinterpret_cast<const char*>(&checksum), 8);
    file += message;
  }
  const auto manifest = datasetd::DecodeManifest(file);
  if (!manifest.ok()) {
    if (manifest.status().code() != absl::StatusCode::kDataLoss) abort();
    return 0;
  }
  // A manifest that was read can be written, and read again.
  const auto again =
      datasetd::DecodeManifest(datasetd::EncodeManifest(*manifest));
  if (!again.ok() || again->entries_size() != manifest->entries_size()) abort();
  return 0;
}
