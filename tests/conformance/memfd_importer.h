// The importer of kMemfd: maps the descriptor.

#ifndef DATASETD_TESTS_CONFORMANCE_MEMFD_IMPORTER_H_
#define DATASETD_TESTS_CONFORMANCE_MEMFD_IMPORTER_H_

#include "tests/conformance/export_peer.h"

namespace datasetd::testing {

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportMemfd(
    const ExportDescription& description, FileDescriptor file);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CONFORMANCE_MEMFD_IMPORTER_H_
