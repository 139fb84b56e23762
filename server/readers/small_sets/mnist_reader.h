// MNIST and its kind (Fashion-MNIST, KMNIST): IDX files, plain or gzip.
//
// The path is the directory of train-images-idx3-ubyte,
// train-labels-idx1-ubyte and the same with t10k; with ".gz" behind, and with
// ".idx" for "-idx", these are found too. Splits: train (default), test.
//
// Fields: image uint8 [H, W, 1], label uint8 []. H and W are the file's. Gzip
// is decompressed as it is read, in 64 KiB; its checksum is checked with the
// last sample.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenMnistReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
