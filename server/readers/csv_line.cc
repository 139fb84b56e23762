#include "server/readers/csv_line.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// Takes a value without quotes off the front of the line.
void TakePlain(absl::string_view& line, std::string& value) {
  const size_t end = std::min(line.find(','), line.size());
  value.assign(line.data(), end);
  line.remove_prefix(end);
}

// Likewise a value in quotes, two of which stand for one.
absl::Status TakeQuoted(absl::string_view& line, std::string& value) {
  value.clear();
  line.remove_prefix(1);
  while (true) {
    const size_t quote = line.find('"');
    if (quote == absl::string_view::npos) {
      return absl::InvalidArgumentError("a quote does not end");
    }
    value.append(line.data(), quote);
    line.remove_prefix(quote + 1);
    if (!absl::StartsWith(line, "\"")) return absl::OkStatus();
    value.push_back('"');
    line.remove_prefix(1);
  }
}

}  // namespace

absl::Status SplitCsvLine(absl::string_view line,
                          std::vector<std::string>& values) {
  for (size_t count = 0;; line.remove_prefix(1)) {
    if (count == values.size()) values.emplace_back();
    std::string& value = values[count++];
    if (absl::StartsWith(line, "\"")) {
      DATASETD_RETURN_IF_ERROR(TakeQuoted(line, value));
    } else {
      TakePlain(line, value);
    }
    if (line.empty()) {
      values.resize(count);
      return absl::OkStatus();
    }
    if (line[0] != ',') {
      return absl::InvalidArgumentError("text behind a quote's end");
    }
  }
}

}  // namespace datasetd
