// Checks a request against the splits and options of its format, and opens what
// it names.

#ifndef DATASETD_SERVER_READERS_SPEC_CHECKS_H_
#define DATASETD_SERVER_READERS_SPEC_CHECKS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/readers/reader.h"

namespace datasetd {

// Returns the requested split, or the first of `splits` if none is requested.
//   INVALID_ARGUMENT  not one of `splits`, or a split where there are none
absl::StatusOr<std::string> ChooseSplit(
    const v1::DatasetSpec& spec, absl::Span<const absl::string_view> splits);

//   INVALID_ARGUMENT  an option that is not in `known`
absl::Status CheckOptions(const v1::DatasetSpec& spec,
                          absl::Span<const absl::string_view> known);

// Returns directory/name with exactly one slash between them.
std::string JoinPath(absl::string_view directory, absl::string_view name);

//   INVALID_ARGUMENT  `path` is not a directory; says what it should contain
absl::Status CheckDirectory(const FileSystem& files, const std::string& path,
                            absl::string_view expected_content);

// Opens the file of a source whose path is one file.
//   INVALID_ARGUMENT              a directory, or empty; says what was expected
//   NOT_FOUND, PERMISSION_DENIED  as FileSystem::Open
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenSourceFile(
    const FileSystem& files, const std::string& path,
    absl::string_view expected);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SPEC_CHECKS_H_
