// An InputStream over gzip, of one member or several.

#ifndef DATASETD_SERVER_READERS_GZIP_STREAM_H_
#define DATASETD_SERVER_READERS_GZIP_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/core/file_system.h"
#include "server/readers/input_stream.h"

namespace datasetd {

//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<std::unique_ptr<InputStream>> OpenGzipStream(
    std::unique_ptr<RandomAccessFile> file);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_GZIP_STREAM_H_
