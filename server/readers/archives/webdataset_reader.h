// Format webdataset: tar shards as written by WebDataset; see docs/readers.md.
//
// Names of members must not be absolute or contain "..". The archives are
// scanned completely at open; holds 16 bytes per field and sample. Archives may
// be gzip under any name (inflated_file.h).

#ifndef DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
#define DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader and tar_members.h.
absl::StatusOr<std::unique_ptr<Reader>> OpenWebdatasetReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_WEBDATASET_READER_H_
