// CIFAR-10 and CIFAR-100, the binary version.
//
// The path is the directory of the .bin files, or the one that holds it as
// cifar-10-batches-bin or cifar-100-binary. Splits: train (default), test.
//
//   cifar10   data_batch_1..5.bin, test_batch.bin; a record is label, image
//   cifar100  train.bin, test.bin; a record is coarse label, fine label, image
//
// Fields: image uint8 [32, 32, 3], label uint8 [] (the fine one of cifar100)
// and, in cifar100, coarse_label uint8 []. Disk holds planes; samples are
// interleaved. Class names come from batches.meta.txt or fine_label_names.txt
// where there is one. A file may hold any number of records but none; the
// format declares no number, so one cut off at the end of a record looks whole.
// Keeps all files open, and 768 KiB.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar10Reader(
    const SourceSpec& spec, const FileSystem& files);
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar100Reader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_READER_H_
