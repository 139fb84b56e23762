// The importer of CUDA's exports, on device 0.

#ifndef DATASETD_TESTS_CUDA_CUDA_IMPORTER_H_
#define DATASETD_TESTS_CUDA_CUDA_IMPORTER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/conformance/export_peer.h"

namespace datasetd::testing {

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportCuda(
    const ExportDescription& description, FileDescriptor file);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CUDA_CUDA_IMPORTER_H_
