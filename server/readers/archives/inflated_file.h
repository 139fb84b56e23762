// A file of gzip or zlib data as if it were not compressed.
//
// Each thread that reads forward has a decompressor of its own, which skips
// what others read; so all threads together inflate the file once for each of
// them. A read behind every free one begins at the file's start. Thread-safe.
// Memory: 64 KiB for each processor, whatever the file says.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_INFLATED_FILE_H_
#define DATASETD_SERVER_READERS_ARCHIVES_INFLATED_FILE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

// Inflates all of it, and checks its checksums.
//   INVALID_ARGUMENT    it is more than `max_bytes`; no more is inflated
//   DATA_LOSS           truncated or damaged; names file and offset
//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<int64_t> InflatedBytes(const RandomAccessFile& file,
                                      int64_t max_bytes);

// Its info is the file's, but for the size, which InflatedBytes told. Reads
// fail as InflatedBytes.
std::shared_ptr<const RandomAccessFile> OpenInflatedFile(
    std::unique_ptr<RandomAccessFile> file, int64_t size_bytes);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_INFLATED_FILE_H_
