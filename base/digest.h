// BLAKE3 digests that identify data. Collision-resistant.

#ifndef DATASETD_BASE_DIGEST_H_
#define DATASETD_BASE_DIGEST_H_

#include <blake3.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace datasetd {

using Digest = std::array<uint8_t, BLAKE3_OUT_LEN>;

// Computes one digest incrementally. Not thread-safe.
class DigestHasher {
 public:
  DigestHasher() { blake3_hasher_init(&hasher_); }

  void Update(absl::Span<const uint8_t> data) {
    blake3_hasher_update(&hasher_, data.data(), data.size());
  }
  void Update(absl::string_view text) {
    blake3_hasher_update(&hasher_, text.data(), text.size());
  }
  Digest Finish() const;

 private:
  blake3_hasher hasher_;
};

// Number of lowercase hexadecimal digits that ToHex returns.
inline constexpr size_t kDigestHexLength = 2 * BLAKE3_OUT_LEN;
std::string ToHex(const Digest& digest);

// Returns the digest of `text` in hexadecimal.
std::string HexDigest(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_BASE_DIGEST_H_
