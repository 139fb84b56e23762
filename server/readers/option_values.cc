#include "server/readers/option_values.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace datasetd {
namespace {

constexpr size_t kMaxOptionDimensions = 8;

}  // namespace

const std::string* FindOption(const v1::DatasetSpec& spec,
                              absl::string_view name) {
  const auto found = spec.options().find(std::string(name));
  return found == spec.options().end() ? nullptr : &found->second;
}

std::string OptionOr(const v1::DatasetSpec& spec, absl::string_view name,
                     absl::string_view fallback) {
  const std::string* const value = FindOption(spec, name);
  return value == nullptr ? std::string(fallback) : *value;
}

absl::StatusOr<std::string> RequiredOption(const v1::DatasetSpec& spec,
                                           absl::string_view name,
                                           absl::string_view expected) {
  const std::string* const value = FindOption(spec, name);
  if (value != nullptr) return *value;
  return absl::InvalidArgumentError(absl::StrCat("format ", spec.format(),
                                                 " needs option ", name,
                                                 ", expected ", expected));
}

absl::StatusOr<int64_t> IntOption(const v1::DatasetSpec& spec,
                                  absl::string_view name, int64_t fallback,
                                  int64_t min, int64_t max) {
  const std::string* const text = FindOption(spec, name);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= min && value <= max) {
    return value;
  }
  return WrongOption(name, *text, "a whole number of ", min, " to ", max);
}

absl::StatusOr<Dtype> ParseDtype(absl::string_view text,
                                 absl::string_view where) {
  std::string known;
  for (int value = static_cast<int>(Dtype::kUint8);
       value <= static_cast<int>(kLastDtype); ++value) {
    const Dtype dtype = static_cast<Dtype>(value);
    if (text == DtypeName(dtype)) return dtype;
    absl::StrAppend(&known, known.empty() ? "" : ", ", DtypeName(dtype));
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ": dtype '",
                                                 absl::Utf8SafeCHexEscape(text),
                                                 "', expected one of ", known));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text,
                                                absl::string_view where) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  int64_t num_elements = 1;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 1 ||
        extent > std::numeric_limits<int32_t>::max() / num_elements ||
        shape.size() == kMaxOptionDimensions) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": shape '", absl::Utf8SafeCHexEscape(text),
          "', expected extents of at least 1 with x between, as 28x28x1, at "
          "most ",
          kMaxOptionDimensions, " of them and 2^31 - 1 elements"));
    }
    num_elements *= extent;
    shape.push_back(extent);
  }
  return shape;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), ")");
}

bool IsFieldName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxFieldNameBytes &&
         !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_';
         });
}

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
        names.size() == kMaxSourceFields) {
      return WrongOption(option, text,
                         "FIELD or FIELD:SOURCE with commas between, each "
                         "field once, at most ",
                         kMaxSourceFields);
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace datasetd
