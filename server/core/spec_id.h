// The identity of a dataset before it is read: equal ids name the same samples,
// unless a file was changed under the same size and mtime. The cache and the
// list of loaded datasets keep them from one daemon to the next.

#ifndef DATASETD_SERVER_CORE_SPEC_ID_H_
#define DATASETD_SERVER_CORE_SPEC_ID_H_

#include <string>

#include "server/core/dataset_spec.h"
#include "server/core/sample_source.h"

namespace datasetd {

// 32 hex digits, of the spec and of the source's files.
std::string SpecId(const DatasetSpec& spec, const SourceInfo& source);

// Of a pushed dataset, which has no files.
std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_SPEC_ID_H_
