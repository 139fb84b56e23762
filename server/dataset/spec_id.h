// The identity of a dataset before it is read: equal ids mean equal samples,
// unless a file changed without changing its size and mtime. The cache and the
// manifest keep ids across restarts.

#ifndef DATASETD_SERVER_DATASET_SPEC_ID_H_
#define DATASETD_SERVER_DATASET_SPEC_ID_H_

#include <cstdint>
#include <string>

#include "server/dataset/dataset_spec.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// 64 hex digits of BLAKE3 over the spec and the source's files.
std::string SpecId(const DatasetSpec& spec, const SourceInfo& source);

// The id of a pushed dataset, which has no files and belongs to the user who
// pushed it.
std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash, uint32_t owner_uid);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_SPEC_ID_H_
