// Format tokens: the steps of a stream, in one file or several; see
// docs/readers.md.

#ifndef DATASETD_SERVER_READERS_ARRAYS_TOKENS_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_TOKENS_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader, and of ExpandBraces.
absl::StatusOr<std::unique_ptr<Reader>> OpenTokensReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_TOKENS_READER_H_
