#include "server/readers/class_names.h"

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxFileBytes = 64 << 10;

}  // namespace

absl::StatusOr<ClassNames> ReadClassNames(const FileSystem& files,
                                          const std::string& path,
                                          int num_classes) {
  auto opened = files.Open(path);
  if (absl::IsNotFound(opened.status())) return ClassNames();
  DATASETD_RETURN_IF_ERROR(opened.status());
  const RandomAccessFile& file = **opened;
  ClassNames result;
  result.file = file.info();
  if (result.file.size_bytes > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", result.file.size_bytes,
        " bytes, expected a list of class names of at most ", kMaxFileBytes));
  }
  std::string text(static_cast<size_t>(result.file.size_bytes), '\0');
  DATASETD_RETURN_IF_ERROR(ReadExactly(
      file, 0,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));

  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (!std::all_of(line.begin(), line.end(), absl::ascii_isprint)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": line ", line_number,
                       ": a class name of other than printable ASCII"));
    }
    result.names.emplace_back(line);
  }
  if (static_cast<int>(result.names.size()) != num_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", result.names.size(), " class names, expected ", num_classes,
        "; correct the file, or remove it to go without names"));
  }
  return result;
}

}  // namespace datasetd
