// Formats cifar10_python and cifar100_python: the Python version of CIFAR.
//
// The path is the directory of the pickles, or one that contains it as
// cifar-10-batches-py or cifar-100-python. Splits: train (default), test.
// Pickles are parsed as data; nothing in them is executed (pickle_data.h).
//
//   cifar10_python   data_batch_1..5, test_batch, batches.meta
//   cifar100_python  train, test, meta
//
// Fields as in cifar_reader.h: image uint8 [32, 32, 3], label uint8 [] and, in
// CIFAR-100, coarse_label uint8 []. Keeps all files open; holds all labels and
// 768 KiB.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_PYTHON_READER_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_PYTHON_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar10PythonReader(
    const SourceSpec& spec, const FileSystem& files);
absl::StatusOr<std::unique_ptr<Reader>> OpenCifar100PythonReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_CIFAR_PYTHON_READER_H_
