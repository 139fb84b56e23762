// The identity of a dataset before it is read: equal ids name the same samples,
// unless a file was changed under the same size and mtime. The cache and the
// list of loaded datasets keep them from one daemon to the next.

#ifndef DATASETD_SERVER_DATASET_SPEC_ID_H_
#define DATASETD_SERVER_DATASET_SPEC_ID_H_

#include <cstdint>
#include <string>

#include "server/dataset/dataset_spec.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// 64 hex digits of BLAKE3, of the spec and of the source's files.
std::string SpecId(const DatasetSpec& spec, const SourceInfo& source);

// Of a pushed dataset, which has no files, and is of the user who pushed it.
std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash, uint32_t owner_uid);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_SPEC_ID_H_
