#include "server/dataset/dataset_limits.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/utf8.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxWordBytes = 256;

absl::Status CheckLength(absl::string_view key, const std::string& text,
                         int64_t max_bytes) {
  if (static_cast<int64_t>(text.size()) <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": has ", text.size(), " bytes, expected at most ", max_bytes));
}

absl::Status CheckGivenClasses(const v1::DatasetSpec& spec) {
  if (spec.ignore_other_classes() && spec.class_names().empty()) {
    return absl::InvalidArgumentError(
        "ignore_other_classes: no class names are given (classes=)");
  }
  std::set<absl::string_view> names;
  for (const std::string& name : spec.class_names()) {
    const char* const what = name.empty() ? "is empty"
                             : ValidUtf8Prefix(name) != name.size()
                                 ? "is not UTF-8"
                             : !names.insert(name).second ? "is there twice"
                                                          : nullptr;
    if (what == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("class_names: '", PrintableUtf8(name), "' ", what));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDatasetName(const std::string& name) {
  constexpr size_t kMaxBytes = 128;
  return !name.empty() && name.size() <= kMaxBytes &&
         absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

uint64_t DatasetTextBytes(const v1::DatasetSpec& spec,
                          const std::vector<std::string>& class_names) {
  uint64_t bytes = spec.SpaceUsedLong();
  for (const std::string& name : class_names) {
    bytes += sizeof(name) + name.size();
  }
  return bytes;
}

absl::Status CheckSpecTexts(const v1::DatasetSpec& spec) {
  if (!IsDatasetName(spec.name())) {
    return absl::InvalidArgumentError(
        "name: a dataset's name has 1 to 128 characters of [A-Za-z0-9._-] and "
        "begins with a letter or digit");
  }
  for (const absl::Status& status :
       {CheckLength("format", spec.format(), kMaxWordBytes),
        CheckLength("path", spec.path(), kMaxPathBytes),
        CheckLength("split", spec.split(), kMaxWordBytes),
        CheckLength("device", spec.device(), kMaxWordBytes),
        CheckGivenClasses(spec)}) {
    if (!status.ok()) return status;
  }
  const auto bytes = static_cast<int64_t>(spec.ByteSizeLong());
  if (bytes <= kMaxSpecTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("spec: has ", bytes,
                   " bytes with its options, pretransforms and class names, "
                   "expected at most ",
                   kMaxSpecTextBytes));
}

absl::Status CheckClassNames(const std::vector<std::string>& names) {
  int64_t bytes = 0;
  for (const std::string& name : names) {
    bytes += static_cast<int64_t>(name.size());
  }
  if (bytes <= kMaxClassNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("class_names: ", names.size(), " names have ", bytes,
                   " bytes, expected at most ", kMaxClassNameBytes,
                   " together; shorten them"));
}

std::string NormalPath(absl::string_view path) {
  std::string normal;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == ".") continue;
    const bool is_first = normal.empty() && !absl::StartsWith(path, "/");
    absl::StrAppend(&normal, is_first ? "" : "/", part);
  }
  if (normal.empty() && !path.empty()) {
    return absl::StartsWith(path, "/") ? "/" : ".";
  }
  return normal;
}

}  // namespace datasetd
