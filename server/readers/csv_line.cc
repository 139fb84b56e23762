#include "server/readers/csv_line.h"

#include <algorithm>
#include <cstddef>

namespace datasetd {

absl::Status SplitCsvLine(absl::string_view line,
                          std::vector<std::string>& values) {
  size_t count = 0;
  const auto next_value = [&]() -> std::string& {
    if (count == values.size()) values.emplace_back();
    std::string& value = values[count++];
    value.clear();
    return value;
  };
  while (true) {
    std::string& value = next_value();
    if (line.empty() || line[0] != '"') {
      const size_t end = std::min(line.find(','), line.size());
      value.assign(line.data(), end);
      line.remove_prefix(end);
    } else {
      line.remove_prefix(1);
      while (true) {
        const size_t quote = line.find('"');
        if (quote == absl::string_view::npos) {
          return absl::InvalidArgumentError("a quote does not end");
        }
        value.append(line.data(), quote);
        line.remove_prefix(quote + 1);
        if (line.empty() || line[0] != '"') break;
        value.push_back('"');
        line.remove_prefix(1);
      }
      if (!line.empty() && line[0] != ',') {
        return absl::InvalidArgumentError("text behind a quote's end");
      }
    }
    if (line.empty()) break;
    line.remove_prefix(1);
  }
  values.resize(count);
  return absl::OkStatus();
}

}  // namespace datasetd
