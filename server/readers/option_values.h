// Parses the values of reader options.

#ifndef DATASETD_SERVER_READERS_OPTION_VALUES_H_
#define DATASETD_SERVER_READERS_OPTION_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors are INVALID_ARGUMENT and name the option.

// The error of an option's value; `expected` are the parts of a text.
template <typename... Parts>
absl::Status WrongOption(absl::string_view name, absl::string_view value,
                         const Parts&... expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", name, " is '", absl::Utf8SafeCHexEscape(value),
                   "', expected ", expected...));
}

// Null if the option is not set.
const std::string* FindOption(const v1::DatasetSpec& spec,
                              absl::string_view name);

// Returns the option's text, or `fallback` if it is not set.
std::string OptionOr(const v1::DatasetSpec& spec, absl::string_view name,
                     absl::string_view fallback);

// INVALID_ARGUMENT also if it is not set.
absl::StatusOr<std::string> RequiredOption(const v1::DatasetSpec& spec,
                                           absl::string_view name,
                                           absl::string_view expected);

absl::StatusOr<int64_t> IntOption(const v1::DatasetSpec& spec,
                                  absl::string_view name, int64_t fallback,
                                  int64_t min, int64_t max);

// Parses "uint8", "float32", ... Errors start with `where`.
absl::StatusOr<Dtype> ParseDtype(absl::string_view text,
                                 absl::string_view where);

// Parses "28x28x1"; "" is (). Extents are at least 1; at most 2^31 - 1
// elements.
absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text,
                                                absl::string_view where);

// Returns "(28, 28, 1)", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

inline constexpr int64_t kMaxImageChannels = 4;
inline constexpr size_t kMaxSourceFields = 64;
inline constexpr size_t kMaxFieldNameBytes = 64;

// True for a letter or _ followed by letters, digits and _; at most
// kMaxFieldNameBytes.
bool IsFieldName(absl::string_view name);

struct FieldName {
  std::string field;
  std::string source;  // the field's own name if not given
};

// Parses a list of fields with their sources, "image:x_train,label:y_train".
// Empty if the option is not set. At most kMaxSourceFields, each once.
absl::StatusOr<std::vector<FieldName>> ParseFieldNames(
    const v1::DatasetSpec& spec, absl::string_view option);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_OPTION_VALUES_H_
