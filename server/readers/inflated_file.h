// A random-access view of a gzip or zlib file.
//
// Each thread that reads forward has its own decompressor, which skips what
// others read; all threads together inflate the file once per thread. A read
// before every free decompressor's position restarts at the beginning.
// Thread-safe. Memory: 64 KiB per processor.

#ifndef DATASETD_SERVER_READERS_INFLATED_FILE_H_
#define DATASETD_SERVER_READERS_INFLATED_FILE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

// Inflates the whole file, verifies its checksums and returns the size.
//   INVALID_ARGUMENT    larger than `max_bytes`; inflation stops there
//   DATA_LOSS           truncated or damaged; names file and offset
//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<int64_t> InflatedBytes(const RandomAccessFile& file,
                                      int64_t max_bytes);

// Its info is that of `file`, but with `size_bytes`, the result of
// InflatedBytes. Reads fail as InflatedBytes.
std::shared_ptr<const RandomAccessFile> OpenInflatedFile(
    std::unique_ptr<RandomAccessFile> file, int64_t size_bytes);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_INFLATED_FILE_H_
