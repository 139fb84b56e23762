// The file format of a stored v1::Manifest:
//
//   magic "dsdmanif", version, size of the message, xxh3 of it; the message
//
// Numbers are little-endian.

#ifndef DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_
#define DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasetd/v1/manifest.pb.h"

namespace datasetd {

inline constexpr size_t kMaxManifestBytes = 64 << 20;

std::string EncodeManifest(const v1::Manifest& manifest);

//   DATA_LOSS  damaged, of another version, or with an invalid dataset name
absl::StatusOr<v1::Manifest> DecodeManifest(absl::string_view data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_MANIFEST_MANIFEST_FORMAT_H_
