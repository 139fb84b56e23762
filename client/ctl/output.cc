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
namespace {

// Returns the length of the control character at the start of the text, in
// bytes of UTF-8; 0 if there is none. Characters that change the direction of
// text count as control characters: they can make a line look like another one.
size_t ControlBytes(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return byte(0) == '\n' ? 0 : 1;
  // U+0080 to U+009F, and U+061C.
  if (byte(0) == 0xc2 && (byte(1) & 0xe0) == 0x80) return 2;
  if (byte(0) == 0xd8 && byte(1) == 0x9c) return 2;
  if (byte(0) != 0xe2) return 0;
  // U+200E, U+200F, U+202A to U+202E, and U+2066 to U+2069.
  const bool is_direction =
      byte(1) == 0x80 ? (byte(2) == 0x8e || byte(2) == 0x8f ||
                         (byte(2) >= 0xaa && byte(2) <= 0xae))
                      : byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9;
  return is_direction ? 3 : 0;
}

// Returns the number of code points, as if each took one column.
size_t Columns(absl::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

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
  while (!text.empty()) {
    const size_t bytes = ControlBytes(text);
    for (size_t i = 0; i < bytes; ++i) {
      absl::StrAppendFormat(&safe, "\\x%02x",
                            static_cast<unsigned char>(text[i]));
    }
    if (bytes == 0) safe += text[0];
    text.remove_prefix(std::max<size_t>(bytes, 1));
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
      widths[c] = std::max(widths[c], Columns(rows[r][c]));
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
      const std::string space(widths[c] - Columns(row[c]), ' ');
      absl::StrAppend(&line, is_number[c] ? space : "", row[c],
                      is_number[c] ? "" : space);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace datasetd::ctl
