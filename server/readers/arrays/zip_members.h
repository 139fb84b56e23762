// Streams the members of a zip archive: stored or deflated, including zip64,
// not encrypted.

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

// Lists members in the order of the central directory, at most 4096. Sizes are
// within what the file can decompress to.
//   INVALID_ARGUMENT  not a zip archive, encrypted, or more than 4096 members
//   DATA_LOSS         truncated or damaged
absl::StatusOr<std::vector<ZipMember>> ListZipMembers(
    const RandomAccessFile& file);

// Opens member `index` of ListZipMembers. The stream has its own file position;
// ExpectEnd verifies its checksum. info() is the archive's.
absl::StatusOr<std::unique_ptr<InputStream>> OpenZipMember(
    std::shared_ptr<const RandomAccessFile> file, size_t index);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_ZIP_MEMBERS_H_
