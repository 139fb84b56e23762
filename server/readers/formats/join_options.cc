#include "server/readers/formats/join_options.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "server/dataset/sorted_options.h"
#include "server/readers/formats/part_reader.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxJoined = 8;

}  // namespace

absl::StatusOr<std::vector<v1::DatasetSpec>> ParseJoinParts(
    const v1::DatasetSpec& spec) {
  DATASETD_ASSIGN_OR_RETURN(
      const std::string text,
      RequiredOption(spec, "parts", "FORMAT:PATH,FORMAT:PATH, ..."));
  std::vector<v1::DatasetSpec> parts;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(
        absl::StripAsciiWhitespace(item), absl::MaxSplits(':', 1));
    v1::DatasetSpec part;
    part.set_format(std::string(pair.first));
    part.set_path(pair.second.empty() || pair.second == "."
                      ? spec.path()
                      : JoinPath(spec.path(), pair.second));
    if (part.format() == spec.format() || absl::StartsWith(pair.second, "/") ||
        parts.size() == kMaxJoined) {
      return WrongOption(
          "parts", text, "FORMAT:PATH with commas between, at most ",
          kMaxJoined, ", no join, and paths below ", spec.path());
    }
    parts.push_back(std::move(part));
  }
  for (const auto& [key, value] : SortedOptions(spec)) {
    if (key == "parts" || key == "fields") continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(key, absl::MaxSplits('.', 1));
    size_t place = 0;
    if (!absl::SimpleAtoi(pair.first, &place) || place >= parts.size() ||
        pair.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "format join has no option '", absl::Utf8SafeCHexEscape(key),
          "'; it has parts, fields, and those of a part with its place before, "
          "as 0.split"));
    }
    if (pair.second == kPartOption) {
      return absl::InvalidArgumentError(
          absl::StrCat("option ", key,
                       ": parts of a join would no longer have the same "
                       "samples; give part without a number, to the join"));
    }
    if (pair.second == "split") {
      parts[place].set_split(value);
    } else {
      (*parts[place].mutable_options())[std::string(pair.second)] = value;
    }
  }
  return parts;
}

absl::StatusOr<JoinColumn> FindJoinColumn(
    const std::vector<std::unique_ptr<Reader>>& parts,
    const std::string& source) {
  std::string name = source;
  size_t begin = 0;
  size_t end = parts.size();
  const size_t dot = source.find('.');
  if (dot != std::string::npos) {
    size_t place = 0;
    if (!absl::SimpleAtoi(source.substr(0, dot), &place) || place >= end) {
      return absl::InvalidArgumentError(
          absl::StrCat("option fields: '", absl::Utf8SafeCHexEscape(source),
                       "', expected a part's place before the dot"));
    }
    begin = place;
    end = place + 1;
    name = source.substr(dot + 1);
  }
  for (size_t p = begin; p < end; ++p) {
    const std::vector<FieldSpec>& fields = parts[p]->info().fields;
    for (size_t f = 0; f < fields.size(); ++f) {
      if (fields[f].name == name) return JoinColumn{p, f};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("option fields: no part has a field '",
                   absl::Utf8SafeCHexEscape(source), "'"));
}

}  // namespace datasetd
