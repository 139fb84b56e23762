// Expands file patterns such as train-{000..146}.tar.

#ifndef DATASETD_SERVER_READERS_BRACE_PATTERN_H_
#define DATASETD_SERVER_READERS_BRACE_PATTERN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/readers/list_memory.h"

namespace datasetd {

// Expands as bash does, in the same order: {000..146} counts, zero-padded if
// one of the two numbers is; {a,b} lists. Braces do not nest. A pattern without
// braces is returned unchanged. Accesses no files. Charges the paths to
// `memory` before they are made.
//   INVALID_ARGUMENT    an unmatched brace, braces without a range or list, or
//                       more than 65536 files
//   RESOURCE_EXHAUSTED  as ListMemory
absl::StatusOr<std::vector<std::string>> ExpandBraces(absl::string_view pattern,
                                                      ListMemory& memory);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_BRACE_PATTERN_H_
