#include "server/readers/brace_pattern.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFiles = 1 << 16;
constexpr size_t kMaxDigits = 18;

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

absl::Status Error(absl::string_view pattern, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern '", absl::Utf8SafeCHexEscape(pattern), "' ",
                   what, "; expected {000..146} or {a,b}"));
}

// Expands the contents of one pair of braces.
absl::StatusOr<std::vector<std::string>> Alternatives(
    absl::string_view pattern, absl::string_view inside) {
  const size_t dots = inside.find("..");
  if (dots == absl::string_view::npos) {
    std::vector<std::string> items = absl::StrSplit(inside, ',');
    if (items.size() > 1) return items;
    return Error(pattern, "has braces around one thing");
  }
  const absl::string_view first = inside.substr(0, dots);
  const absl::string_view last = inside.substr(dots + 2);
  int64_t from = 0;
  int64_t to = 0;
  if (!IsNumber(first) || !IsNumber(last) || !absl::SimpleAtoi(first, &from) ||
      !absl::SimpleAtoi(last, &to)) {
    return Error(pattern, "has a range of something else than numbers");
  }
  if (std::llabs(to - from) >= static_cast<int64_t>(kMaxFiles)) {
    return Error(pattern, "names more than 65536 files");
  }
  const bool is_padded = (first.size() > 1 && first[0] == '0') ||
                         (last.size() > 1 && last[0] == '0');
  const size_t width = is_padded ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> items;
  const int64_t step = from <= to ? 1 : -1;
  for (int64_t i = from;; i += step) {
    std::string item = absl::StrCat(i);
    if (item.size() < width) item.insert(0, width - item.size(), '0');
    items.push_back(std::move(item));
    if (i == to) return items;
  }
}

// The memory of the paths once each is longer by `more` bytes.
int64_t PathBytes(const std::vector<std::string>& paths, size_t more) {
  size_t bytes = 0;
  for (const std::string& path : paths) {
    bytes += sizeof(std::string) + path.size() + more + 1;
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandBraces(absl::string_view pattern,
                                                      ListMemory& memory) {
  std::vector<std::string> paths = {""};
  absl::string_view rest = pattern;
  while (!rest.empty()) {
    const size_t open = std::min(rest.find('{'), rest.size());
    if (rest.substr(0, open).find('}') != absl::string_view::npos) {
      return Error(pattern, "closes a brace that is not open");
    }
    DATASETD_RETURN_IF_ERROR(memory.GrowTo(PathBytes(paths, open)));
    for (std::string& path : paths)
      absl::StrAppend(&path, rest.substr(0, open));
    if (open == rest.size()) break;
    const size_t close = rest.find_first_of("{}", open + 1);
    if (close == absl::string_view::npos || rest[close] == '{') {
      return Error(pattern, "does not close a brace, or nests them");
    }
    DATASETD_ASSIGN_OR_RETURN(
        const std::vector<std::string> items,
        Alternatives(pattern, rest.substr(open + 1, close - open - 1)));
    if (items.size() * paths.size() > kMaxFiles) {
      return Error(pattern, "names more than 65536 files");
    }
    // Each path once for each item, beside what there is.
    const size_t longest =
        std::max_element(items.begin(), items.end(),
                         [](const std::string& a, const std::string& b) {
                           return a.size() < b.size();
                         })
            ->size();
    DATASETD_RETURN_IF_ERROR(
        memory.GrowTo(PathBytes(paths, 0) + static_cast<int64_t>(items.size()) *
                                                PathBytes(paths, longest)));
    std::vector<std::string> longer;
    longer.reserve(items.size() * paths.size());
    for (const std::string& path : paths) {
      for (const std::string& item : items) {
        longer.push_back(absl::StrCat(path, item));
      }
    }
    paths = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return paths;
}

}  // namespace datasetd
