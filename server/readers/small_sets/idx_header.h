// Parses the header of an IDX file: magic, then one big-endian count per
// dimension.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/readers/input_stream.h"

namespace datasetd {

// Reads the header of a uint8 file with `num_dimensions` dimensions from the
// start of the stream, and checks that the stream can hold the declared size.
// Returns the extents: samples, then those of one sample. REQUIRES: 1 <=
// num_dimensions <= 3.
//   INVALID_ARGUMENT  wrong magic, no samples, an extent of a sample outside
//                     1..16384
//   DATA_LOSS         truncated, or the declared size is impossible
absl::StatusOr<std::vector<int64_t>> ReadIdxHeader(InputStream& stream,
                                                   int num_dimensions);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_
