// Formats cifar10 and cifar100: the binary version of CIFAR; see
// docs/readers.md.
//
// Files store planes; samples are interleaved. Keeps all files open; holds
// 768 KiB.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenCifarReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
