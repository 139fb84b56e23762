// The file format of a stored v1::Manifest:
//
//   prefix: magic "dsdmanif", version 2, number of entries, xxh3 of the index
//   index: for each entry, its size and its xxh3
//   the entries, messages v1::Manifest::Entry
//   the index and the prefix again
//
// An entry that is damaged costs that entry alone; an index that is damaged, no
// entry. Numbers are little-endian. Files of version 1 are read: magic,
// version, size of the message, xxh3 of it; the message v1::Manifest.

#ifndef DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_
#define DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasetd/v1/manifest.pb.h"

namespace datasetd {

inline constexpr size_t kMaxManifestBytes = 64 << 20;

std::string EncodeManifest(const v1::Manifest& manifest);

// Bytes that a file has beside the entries and those of each entry.
inline constexpr size_t kManifestBytes = 48;
inline constexpr size_t kManifestBytesOfEntry = 32;

struct DecodedManifest {
  v1::Manifest manifest;
  absl::Status damage;  // DATA_LOSS if something is damaged
};

// Returns the entries that are whole and have a name of their own.
//   DATA_LOSS  there is no whole index, or another version
absl::StatusOr<DecodedManifest> DecodeManifest(absl::string_view data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_
