// CRC-32C (Castagnoli), as used by iSCSI and TFRecord.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_CRC32C_H_
#define DATASETD_SERVER_READERS_ARCHIVES_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

namespace datasetd {

uint32_t Crc32c(absl::Span<const uint8_t> bytes);

// The masked form that TFRecord stores.
inline uint32_t MaskedCrc32c(absl::Span<const uint8_t> bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_CRC32C_H_
