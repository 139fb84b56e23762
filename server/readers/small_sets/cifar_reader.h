// Formats cifar10 and cifar100: the binary version of CIFAR.
//
// The path is the directory of the .bin files, or one that contains it as
// cifar-10-batches-bin or cifar-100-binary. Splits: train (default), test.
//
//   cifar10   data_batch_1..5.bin, test_batch.bin; a record is label, image
//   cifar100  train.bin, test.bin; a record is coarse label, fine label, image
//
// Fields: image uint8 [32, 32, 3], label uint8 [] (in cifar100 the fine one)
// and, in cifar100, coarse_label uint8 []. Files store planes; samples are
// interleaved. Class names are read from batches.meta.txt or
// fine_label_names.txt if present. A file has one or more records; the format
// has no record count, so a file truncated at a record boundary is not
// detected. Keeps all files open; holds 768 KiB.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar10Reader(
    const SourceSpec& spec, const FileSystem& files);
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar100Reader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
