// An IDX file, plain or gzip: magic, one big-endian count per dimension, then
// the values.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_IDX_FILE_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_IDX_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

struct IdxFile {
  FileInfo info;                                   // as stored
  std::shared_ptr<const RandomAccessFile> values;  // decompressed
  int64_t header_bytes = 0;
  std::vector<int64_t> extents;  // samples, then those of one sample
  bool is_compressed = false;
};

// Opens a uint8 file with `num_dimensions` dimensions. Inflates a gzip file
// once to verify it; gzip is known by its first two bytes, not by the file
// name. REQUIRES: 1 <= num_dimensions <= 3.
//   INVALID_ARGUMENT  wrong magic, no samples, an extent of a sample outside
//                     1..16384
//   DATA_LOSS         truncated or damaged, or not of the size that the header
//                     declares
absl::StatusOr<IdxFile> OpenIdxFile(std::unique_ptr<RandomAccessFile> file,
                                    int num_dimensions);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_IDX_FILE_H_
