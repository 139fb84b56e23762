// The members of a zip archive, as streams. Stored or deflated, 64-bit sizes
// included; nothing encrypted.

#ifndef DATASETD_SERVER_READERS_ARRAYS_ZIP_MEMBERS_H_
#define DATASETD_SERVER_READERS_ARRAYS_ZIP_MEMBERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"
#include "server/readers/input_stream.h"

namespace datasetd {

struct ZipMember {
  std::string name;
  int64_t size_bytes = 0;  // decompressed
};

// In the order of the central directory, at most 4096. Their sizes are within
// what the file can decompress to.
//   INVALID_ARGUMENT  no zip archive, encrypted, more than 4096 members
//   DATA_LOSS         truncated or damaged
absl::StatusOr<std::vector<ZipMember>> ListZipMembers(
    const RandomAccessFile& file);

// `index` as in ListZipMembers. The stream has its own place in the file, and
// its checksum is checked by ExpectEnd. info() is the archive's.
absl::StatusOr<std::unique_ptr<InputStream>> OpenZipMember(
    std::shared_ptr<const RandomAccessFile> file, size_t index);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_ZIP_MEMBERS_H_
