// The header of an IDX file: magic, then one big-endian count per dimension.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/readers/input_stream.h"

namespace datasetd {

// Reads the header of a file of uint8 in `num_dimensions` dimensions, at the
// beginning of the stream, and checks that the stream can hold what it
// declares. Returns the extents: samples, then those of one sample.
// REQUIRES: 1 <= num_dimensions <= 3.
//   INVALID_ARGUMENT  another magic, zero samples, an extent of a sample
//                     outside 1..16384
//   DATA_LOSS         ends early, or declares what it cannot hold
absl::StatusOr<std::vector<int64_t>> ReadIdxHeader(InputStream& stream,
                                                   int num_dimensions);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_IDX_HEADER_H_
