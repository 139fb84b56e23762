// The options of format join; see docs/readers.md.

#ifndef DATASETD_SERVER_READERS_FORMATS_JOIN_OPTIONS_H_
#define DATASETD_SERVER_READERS_FORMATS_JOIN_OPTIONS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// The source of one field of the result.
struct JoinColumn {
  size_t part = 0;
  size_t field = 0;
};

// Parses the sources from option parts and the prefixed options.
//   INVALID_ARGUMENT  parts is missing or invalid, or there is another option
absl::StatusOr<std::vector<v1::DatasetSpec>> ParseJoinParts(
    const v1::DatasetSpec& spec);

// Returns the column that option fields names: `source` is FIELD, of the first
// part that has it, or PART.FIELD.
//   INVALID_ARGUMENT  no part has the field
absl::StatusOr<JoinColumn> FindJoinColumn(
    const std::vector<std::unique_ptr<Reader>>& parts,
    const std::string& source);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FORMATS_JOIN_OPTIONS_H_
