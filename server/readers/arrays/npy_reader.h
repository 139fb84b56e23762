// Format npy: a directory with one .npy file per field; see docs/readers.md.
//
// Keeps all files open, at most 64, and reads directly into the caller's
// buffers.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenNpyReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
