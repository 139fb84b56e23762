// The files that a pattern such as train-{000..146}.tar names.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_BRACE_PATTERN_H_
#define DATASETD_SERVER_READERS_ARCHIVES_BRACE_PATTERN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace datasetd {

// As bash expands it, in its order: {000..146} counts, with zeros in front if
// one of the two has them, {a,b} lists. Braces do not nest. Without braces the
// pattern itself. Looks at no file.
//   INVALID_ARGUMENT  a brace without its other half, neither a range nor a
//                     list in it, or more than 65536 files
absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_BRACE_PATTERN_H_
