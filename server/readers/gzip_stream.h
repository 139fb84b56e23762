// An InputStream that decompresses gzip, of one or more members, or zlib.

#ifndef DATASETD_SERVER_READERS_GZIP_STREAM_H_
#define DATASETD_SERVER_READERS_GZIP_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/random_access_file.h"
#include "server/readers/input_stream.h"

namespace datasetd {

class GzipStream : public InputStream {
 public:
  // Reads up to buffer.size() of the next bytes. Returns 0 only at the end,
  // after the checksum was verified. DATA_LOSS as Read, except for the end of
  // the data.
  virtual absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> buffer) = 0;
};

//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<std::unique_ptr<GzipStream>> OpenGzipStream(
    std::unique_ptr<RandomAccessFile> file);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_GZIP_STREAM_H_
