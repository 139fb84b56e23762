// Splits a line of a CSV file by RFC 4180, without line breaks in values.

#ifndef DATASETD_SERVER_READERS_CSV_LINE_H_
#define DATASETD_SERVER_READERS_CSV_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace datasetd {

// Splits `line`, which has no line break, into `values`, reusing its memory.
//   INVALID_ARGUMENT  an unterminated quote, or text after a closing quote
absl::Status SplitCsvLine(absl::string_view line,
                          std::vector<std::string>& values);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_CSV_LINE_H_
