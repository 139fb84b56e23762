// Format join: several sources side by side; sample i combines sample i of
// each. See docs/readers.md.

#ifndef DATASETD_SERVER_READERS_FORMATS_JOIN_READER_H_
#define DATASETD_SERVER_READERS_FORMATS_JOIN_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenJoinReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FORMATS_JOIN_READER_H_
