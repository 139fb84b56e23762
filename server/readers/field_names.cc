#include "server/readers/field_names.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;

}  // namespace

absl::StatusOr<std::vector<FieldName>> ParseFieldNames(
    const v1::DatasetSpec& spec, absl::string_view option) {
  std::vector<FieldName> names;
  const std::string text = OptionOr(spec, option, "");
  if (text.empty()) return names;
  std::set<std::string> seen;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits(':', 1));
    FieldName name;
    name.field = std::string(absl::StripAsciiWhitespace(parts.first));
    name.source = std::string(absl::StripAsciiWhitespace(
        parts.second.empty() ? parts.first : parts.second));
    if (!IsFieldName(name.field) || !seen.insert(name.field).second ||
        names.size() == kMaxFields) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option ", option, " is '", absl::Utf8SafeCHexEscape(text),
          "', expected FIELD or FIELD:SOURCE with commas between, each field "
          "once, at most ",
          kMaxFields));
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace datasetd
