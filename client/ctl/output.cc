#include "client/ctl/output.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace datasetd::ctl {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = true;
  std::string json;
  // Fails only for unknown Any types, which these messages do not contain.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

std::string ErrorToJson(const absl::Status& status) {
  const nlohmann::json error = {
      {"error",
       {{"code", absl::StatusCodeToString(status.code())},
        {"message", std::string(status.message())}}}};
  // Messages may contain text from files: replace invalid UTF-8 instead of
  // throwing.
  return error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string WithoutControls(absl::string_view text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8, U+0080 to U+009F are C2 80 to C2 9F.
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() &&
                       (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (is_c1 || (byte < 0x20 && byte != '\n') || byte == 0x7f) {
      absl::StrAppendFormat(&safe, "\\x%02x", byte);
      if (is_c1) {
        ++i;
        absl::StrAppendFormat(&safe, "\\x%02x",
                              static_cast<unsigned char>(text[i]));
      }
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  // Use the next unit for values that would be rounded to 1000.0.
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  if (seconds > 1e9) return "-";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) {
    return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  }
  return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string FormatTable(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) {
      cell = absl::StrReplaceAll(WithoutControls(cell), {{"\n", "\\n"}});
    }
  }
  std::vector<size_t> widths;
  std::vector<bool> is_number;
  for (size_t r = 0; r < rows.size(); ++r) {
    widths.resize(std::max(widths.size(), rows[r].size()));
    is_number.resize(widths.size(), rows.size() > 1);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], rows[r][c].size());
      const std::string& cell = rows[r][c];
      if (r > 0 && (cell.empty() || !absl::ascii_isdigit(cell[0]))) {
        is_number[c] = false;
      }
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string space(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, is_number[c] ? space : "", row[c],
                      is_number[c] ? "" : space);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace datasetd::ctl
