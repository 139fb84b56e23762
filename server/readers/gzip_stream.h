// An InputStream over gzip, of one member or several, or over a zlib stream.

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
  // Reads up to buffer.size() of the next bytes; 0 only at the end, whose
  // checksum is right. DATA_LOSS as Read, but for that end.
  virtual absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> buffer) = 0;
};

//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<std::unique_ptr<GzipStream>> OpenGzipStream(
    std::unique_ptr<RandomAccessFile> file);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_GZIP_STREAM_H_
