// The values of reader options, from text.

#ifndef DATASETD_SERVER_READERS_OPTION_VALUES_H_
#define DATASETD_SERVER_READERS_OPTION_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors are INVALID_ARGUMENT and name the option.

// The option's text, or `fallback` where it is not given.
std::string OptionOr(const SourceSpec& spec, absl::string_view name,
                     absl::string_view fallback);

//   also where it is not given
absl::StatusOr<std::string> RequiredOption(const SourceSpec& spec,
                                           absl::string_view name,
                                           absl::string_view expected);

absl::StatusOr<int64_t> IntOption(const SourceSpec& spec,
                                  absl::string_view name, int64_t fallback,
                                  int64_t min, int64_t max);

// "uint8", "float32", ... `where` begins the error.
absl::StatusOr<Dtype> ParseDtype(absl::string_view text,
                                 absl::string_view where);

// "28x28x1"; "" is (). Every extent is at least 1, at most 2^31 - 1 elements in
// all.
absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text,
                                                absl::string_view where);

// A letter or _, then letters, digits and _; at most 64.
bool IsFieldName(absl::string_view name);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_OPTION_VALUES_H_
