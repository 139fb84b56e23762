#include "server/manifest/manifest_format.h"

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/cache/cache_entry.h"
#include "server/dataset/dataset_limits.h"

namespace datasetd {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Prefix {
  char magic[8] = {'d', 's', 'd', 'm', 'a', 'n', 'i', 'f'};
  uint32_t version = 1;
  uint32_t size_bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Prefix) == 24);

// True for this version's content hash, and for the previous version's (XXH3,
// 128 bits), whose pushed datasets are not found.
bool IsContentHash(const std::string& hash) {
  return IsCacheId(hash) || (hash.size() == 32 && IsCacheId(hash + hash));
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("manifest: ", what));
}

}  // namespace

std::string EncodeManifest(const v1::Manifest& manifest) {
  const std::string message = manifest.SerializeAsString();
  Prefix prefix;
  prefix.size_bytes = static_cast<uint32_t>(message.size());
  prefix.checksum = XXH3_64bits(message.data(), message.size());
  return std::string(reinterpret_cast<const char*>(&prefix), sizeof(prefix)) +
         message;
}

absl::StatusOr<v1::Manifest> DecodeManifest(absl::string_view data) {
  Prefix expected;
  Prefix prefix;
  if (data.size() < sizeof(prefix) || data.size() > kMaxManifestBytes) {
    return Damaged(absl::StrCat("has ", data.size(), " bytes"));
  }
  std::memcpy(&prefix, data.data(), sizeof(prefix));
  if (std::memcmp(prefix.magic, expected.magic, sizeof(prefix.magic)) != 0) {
    return Damaged("does not begin as one");
  }
  if (prefix.version != expected.version) {
    return Damaged(absl::StrCat("its version is ", prefix.version,
                                ", this daemon's ", expected.version));
  }
  const absl::string_view message = data.substr(sizeof(prefix));
  if (message.size() != prefix.size_bytes) {
    return Damaged(absl::StrCat("has ", message.size(), " bytes, and should ",
                                "have ", prefix.size_bytes));
  }
  if (XXH3_64bits(message.data(), message.size()) != prefix.checksum) {
    return Damaged("its checksum is wrong");
  }
  v1::Manifest manifest;
  if (!manifest.ParseFromArray(message.data(),
                               static_cast<int>(message.size()))) {
    return Damaged("makes no sense");
  }
  std::set<std::string> names;
  for (int i = 0; i < manifest.entries_size(); ++i) {
    const v1::Manifest::Entry& entry = manifest.entries(i);
    if (!IsDatasetName(entry.spec().name()) ||
        !names.insert(entry.spec().name()).second) {
      return Damaged(absl::StrCat("entry ", i, " has no name of its own"));
    }
    if (!IsContentHash(entry.content_hash())) {
      return Damaged(absl::StrCat("entry ", i, " has no content hash"));
    }
  }
  return manifest;
}

}  // namespace datasetd
