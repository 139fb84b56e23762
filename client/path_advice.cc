#include "client/path_advice.h"

#include <glob.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/nearest_word.h"

namespace datasetd::client {
namespace {

constexpr size_t kMaxNames = 10000;  // of a directory, that are compared

// True also if this process may not look.
bool IsThere(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  return status.type() != std::filesystem::file_type::not_found;
}

// "PATH is there", or an empty text.
std::string IfThere(const std::string& path) {
  return IsThere(path) ? absl::StrCat("; ", path, " is there") : "";
}

// Advice for a path with a variable, as "/here/$HOME/x" or "${HOME}/x".
std::string AdviceForVariable(const std::string& path) {
  const size_t dollar = path.find('$');
  if (dollar == std::string::npos) return "";
  const bool is_braced = path.compare(dollar + 1, 1, "{") == 0;
  const size_t begin = dollar + (is_braced ? 2 : 1);
  size_t end = begin;
  while (end < path.size() &&
         (absl::ascii_isalnum(static_cast<unsigned char>(path[end])) ||
          path[end] == '_')) {
    ++end;
  }
  const std::string name = path.substr(begin, end - begin);
  if (name.empty()) return "";
  if (is_braced && path.compare(end, 1, "}") == 0) ++end;
  const char* const value = getenv(name.c_str());
  if (value == nullptr) {
    return absl::StrCat("variables in a path are not expanded, and $", name,
                        " is not set");
  }
  const bool is_absolute = *value == '/';
  const std::string expanded = absl::StrCat(
      is_absolute ? "" : path.substr(0, dollar), value, path.substr(end));
  return absl::StrCat("variables in a path are not expanded: give ", expanded,
                      ", in Python os.path.expandvars(path)");
}

std::string AdviceForHome(const std::string& path) {
  const size_t tilde = path.find("/~/");
  const char* const home = getenv("HOME");
  if (tilde == std::string::npos || home == nullptr) return "";
  return absl::StrCat("~ is not expanded there: give ", home,
                      path.substr(tilde + 2));
}

std::string AdviceForBackslashes(const std::string& path) {
  if (!absl::StrContains(path, '\\')) return "";
  const size_t drive = path.find(":\\");
  if (drive != std::string::npos) {
    return absl::StrCat("'", path.substr(drive - std::min<size_t>(drive, 1)),
                        "' is a path of Windows: give that of the files on "
                        "this machine");
  }
  const std::string slashes = absl::StrReplaceAll(path, {{"\\", "/"}});
  return absl::StrCat("paths are written with /", IfThere(slashes));
}

std::string AdviceForStar(const std::string& path) {
  if (path.find_first_of("*?[") == std::string::npos) return "";
  glob_t found = {};
  const size_t count = glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0
                           ? found.gl_pathc
                           : 0;
  globfree(&found);
  return absl::StrCat(
      "patterns are written {000..009} or {a,b}, not with *, ? or []",
      count == 0 ? ", and no file here fits it"
                 : absl::StrCat("; ", count, count == 1 ? " file" : " files",
                                " here would fit it; for webdataset and "
                                "tfrecord a list is taken, too: "
                                "sorted(glob.glob(path))"));
}

// The nearest name in the last directory that is there.
std::string AdviceForName(const std::filesystem::path& path) {
  std::filesystem::path directory = path.parent_path();
  std::filesystem::path name = path.filename();
  std::filesystem::path rest;
  while (!IsThere(directory) && directory.has_relative_path()) {
    rest = rest.empty() ? name : name / rest;
    name = directory.filename();
    directory = directory.parent_path();
  }
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  const std::filesystem::directory_iterator end;
  for (; !error && entry != end && names.size() < kMaxNames;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  std::string nearest;
  for (const std::string& other : names) {
    if (absl::EqualsIgnoreCase(other, name.string())) nearest = other;
  }
  if (nearest.empty()) nearest = NearestWord(name.string(), names);
  if (!nearest.empty()) {
    const auto meant = directory / nearest;
    return absl::StrCat(
        "did you mean ",
        (rest.empty() || !IsThere(meant / rest) ? meant : meant / rest)
            .string(),
        "?");
  }
  return rest.empty() ? ""
                      : absl::StrCat("there is no '", name.string(), "' in ",
                                     directory.string());
}

std::string AdviceForUrl(const std::string& path) {
  constexpr absl::string_view kFile = "file://";
  const std::string scheme = absl::AsciiStrToLower(path.substr(0, 7));
  if (scheme == kFile) {
    return absl::StrCat(path, ": URLs are not read: give the path, ",
                        path.substr(kFile.size()));
  }
  const bool is_of_hub = absl::StartsWith(scheme, "hf://");
  return absl::StrCat(
      path, ": URLs are not read: download the files and give their path, or ",
      is_of_hub ? "load them with datasets.load_dataset"
                : "read them in Python",
      " and push what you get: datasetd.push(name, data)");
}

// What a reader added to the error of a file, behind the daemon's own advice.
absl::string_view BehindAdvice(absl::string_view message) {
  for (const absl::string_view end :
       {"`datasetctl run`",
        "no such file or directory, as seen by the daemon"}) {
    const size_t found = message.find(end);
    if (found != absl::string_view::npos) {
      return message.substr(found + end.size());
    }
  }
  return "";
}

}  // namespace

bool IsUrl(const std::string& path) {
  const size_t colon = path.find("://");
  return colon != std::string::npos && colon > 0 &&
         std::all_of(path.begin(), path.begin() + static_cast<ptrdiff_t>(colon),
                     [](unsigned char c) {
                       return absl::ascii_isalnum(c) || c == '+' || c == '-';
                     }) &&
         !IsThere(path);
}

std::string PathAdvice(const std::string& path) {
  if (path.empty() || IsThere(path)) return "";
  if (IsUrl(path)) return AdviceForUrl(path);
  std::error_code error;
  const auto absolute =
      std::filesystem::absolute(path, error).lexically_normal();
  const std::string text = error ? path : absolute.string();
  std::string advice;
  for (const auto& find : {AdviceForVariable, AdviceForHome,
                           AdviceForBackslashes, AdviceForStar}) {
    if (advice.empty()) advice = find(text);
  }
  if (advice.empty()) advice = AdviceForName(absolute);
  return absl::StrCat(text, ": no such file or directory",
                      advice.empty() ? "" : ": ", advice);
}

absl::Status ExplainMissingFile(const absl::Status& error) {
  if (!absl::IsNotFound(error) && !absl::IsPermissionDenied(error)) {
    return error;
  }
  const std::string message(error.message());
  size_t end = std::string::npos;
  for (const char* const words : {": no such file or directory, as seen by ",
                                  ": not below a data root, as seen by "}) {
    end = std::min(end, message.find(words));
  }
  const size_t begin = message.find('/');
  if (end == std::string::npos || begin >= end) return error;
  const std::string advice = PathAdvice(message.substr(begin, end - begin));
  if (advice.empty()) return error;
  return absl::NotFoundError(
      absl::StrCat(message.substr(0, begin), advice, BehindAdvice(message)));
}

}  // namespace datasetd::client
