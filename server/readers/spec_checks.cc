#include "server/readers/spec_checks.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/dataset/sorted_options.h"

namespace datasetd {

absl::StatusOr<std::string> ChooseSplit(
    const v1::DatasetSpec& spec, absl::Span<const absl::string_view> splits) {
  if (spec.split().empty()) {
    return splits.empty() ? std::string() : std::string(splits.front());
  }
  if (std::find(splits.begin(), splits.end(), spec.split()) != splits.end()) {
    return spec.split();
  }
  const std::string split = absl::Utf8SafeCHexEscape(spec.split());
  if (splits.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "format ", spec.format(), " has no splits, but split '", split,
        "' was asked for: leave it empty and give the path of that split"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("format ", spec.format(), " has no split '", split,
                   "'; it has: ", absl::StrJoin(splits, ", ")));
}

absl::Status CheckOptions(const v1::DatasetSpec& spec,
                          absl::Span<const absl::string_view> known) {
  for (const auto& [name, value] : SortedOptions(spec)) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("format ", spec.format(), " has no option '",
                     absl::Utf8SafeCHexEscape(name), "'; it has ",
                     known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(absl::StripSuffix(directory, "/"), "/", name);
}

absl::Status CheckDirectory(const FileSystem& files, const std::string& path,
                            absl::string_view expected_content) {
  DATASETD_ASSIGN_OR_RETURN(const FileInfo info, files.Stat(path));
  if (info.is_directory) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": a file, expected the directory that holds ", expected_content));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenSourceFile(
    const FileSystem& files, const std::string& path,
    absl::string_view expected) {
  DATASETD_ASSIGN_OR_RETURN(const FileInfo info, files.Stat(path));
  if (info.is_directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a directory, expected ", expected));
  }
  DATASETD_ASSIGN_OR_RETURN(auto file, files.Open(path));
  if (file->info().size_bytes > 0) return file;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": empty, expected ", expected));
}

}  // namespace datasetd
