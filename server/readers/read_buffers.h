// Checks the arguments of Reader::Read.

#ifndef DATASETD_SERVER_READERS_READ_BUFFERS_H_
#define DATASETD_SERVER_READERS_READ_BUFFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/readers/reader.h"

namespace datasetd {

//   INTERNAL  Read's REQUIRES are violated: there are no such samples, or a
//             buffer has another size
absl::Status CheckReadBuffers(const SourceInfo& info, int64_t first,
                              int64_t count,
                              absl::Span<const absl::Span<uint8_t>> fields);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_READ_BUFFERS_H_
