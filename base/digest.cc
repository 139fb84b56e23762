#include "base/digest.h"

#include "absl/strings/escaping.h"

namespace datasetd {

Digest DigestHasher::Finish() const {
  Digest digest;
  blake3_hasher_finalize(&hasher_, digest.data(), digest.size());
  return digest;
}

std::string ToHex(const Digest& digest) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string HexDigest(absl::string_view text) {
  DigestHasher hasher;
  hasher.Update(text);
  return ToHex(hasher.Finish());
}

}  // namespace datasetd
