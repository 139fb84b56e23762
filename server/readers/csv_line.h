// One line of a CSV file, as RFC 4180 has it, but without line breaks in values.

#ifndef DATASETD_SERVER_READERS_CSV_LINE_H_
#define DATASETD_SERVER_READERS_CSV_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace datasetd {

// Splits `line`, which has no line break, into `values`, whose memory is used
// again.
//   INVALID_ARGUMENT  a quote that does not end, or text behind it
absl::Status SplitCsvLine(absl::string_view line,
                          std::vector<std::string>& values);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_CSV_LINE_H_
