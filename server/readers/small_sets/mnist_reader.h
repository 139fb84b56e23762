// Format mnist: MNIST, Fashion-MNIST and KMNIST as IDX files; see
// docs/readers.md. Gzip is decompressed while reading, in 64 KiB; its checksum
// is verified with the last sample.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenMnistReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
