// Input: a manifest, as a file. If its first byte is 1, the rest is the message
// of version 1, and gets a right prefix. If it is 2, the rest is three bytes,
// which are the offset and the mask of a damage, and the message of what is
// encoded before that.

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
  if (size >= 4 && data[0] == 2) {
    datasetd::v1::Manifest message;
    if (!message.ParseFromArray(data + 4, static_cast<int>(size) - 4)) return 0;
    file = datasetd::EncodeManifest(message);
    const auto whole = datasetd::DecodeManifest(file);
    if (!whole.ok()) abort();
    file[(data[1] | data[2] << 8) % file.size()] ^= static_cast<char>(data[3]);
    const auto damaged = datasetd::DecodeManifest(file);
    // It costs one entry at most.
    if (!damaged.ok() ||
        damaged->manifest.entries_size() + 1 < whole->manifest.entries_size()) {
      abort();
    }
  }
  const auto manifest = datasetd::DecodeManifest(file);
  if (!manifest.ok()) {
    if (manifest.status().code() != absl::StatusCode::kDataLoss) abort();
    return 0;
  }
  // A manifest that was read can be written, and read again.
  const auto again =
      datasetd::DecodeManifest(datasetd::EncodeManifest(manifest->manifest));
  if (!again.ok() || !again->damage.ok() ||
      again->manifest.entries_size() != manifest->manifest.entries_size()) {
    abort();
  }
  return 0;
}
