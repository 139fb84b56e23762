// Format mnist: MNIST, Fashion-MNIST and KMNIST as IDX files, plain or gzip.
//
// The path is the directory of train-images-idx3-ubyte, train-labels-idx1-ubyte
// and the same with t10k; names with ".gz" appended, and with ".idx" for
// "-idx", are found too. Splits: train (default), test.
//
// Fields: image uint8 [H, W, 1], label uint8 []; H and W are taken from the
// file. Gzip is decompressed while reading, in 64 KiB; its checksum is verified
// with the last sample.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenMnistReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_MNIST_READER_H_
