#include "server/readers/images/image_folder_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/readers/images/image_list.h"
#include "server/readers/images/image_options.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr absl::string_view kExtensions[] = {
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
constexpr int kMaxDepth = 32;
constexpr size_t kMaxClasses = 1 << 20;

absl::string_view NameOf(const FileInfo& entry) {
  return absl::string_view(entry.path).substr(entry.path.rfind('/') + 1);
}

bool IsImageName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](absl::string_view extension) {
                       return absl::EndsWith(lower, extension);
                     });
}

// A link that leaves the roots is listed as an empty file. It may stand for a
// directory, whose samples must not be missing silently.
absl::Status CheckLink(const FileInfo& entry, const FileSystem& files) {
  if (entry.size_bytes != 0) return absl::OkStatus();
  const absl::Status status = files.Stat(entry.path).status();
  return absl::IsPermissionDenied(status) ? status : absl::OkStatus();
}

// The images and subdirectories of one directory, by name.
struct Directory {
  std::string path;
  std::vector<FileInfo> images;
};

// Appends `path` and all directories below it.
absl::Status Walk(const std::string& path, int depth, const FileSystem& files,
                  std::vector<Directory>& directories) {
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kMaxDepth,
                     " directories deep; is there a link to a directory above "
                     "itself?"));
  }
  DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, files.List(path));
  Directory directory = {.path = path};
  for (FileInfo& entry : entries) {
    if (entry.is_directory) {
      DATASETD_RETURN_IF_ERROR(Walk(entry.path, depth + 1, files, directories));
    } else if (IsImageName(NameOf(entry))) {
      directory.images.push_back(std::move(entry));
    } else {
      DATASETD_RETURN_IF_ERROR(CheckLink(entry, files));
    }
  }
  directories.push_back(std::move(directory));
  return absl::OkStatus();
}

absl::StatusOr<std::string> FindRoot(const v1::DatasetSpec& spec,
                                     const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(
      CheckDirectory(files, spec.path(), "a directory for each class"));
  if (spec.split().empty()) return spec.path();
  const std::string path = JoinPath(spec.path(), spec.split());
  const bool is_name =
      !absl::StrContains(spec.split(), '/') && spec.split() != "..";
  const auto info = files.Stat(path);
  if (is_name && info.ok() && info->is_directory) return path;
  if (is_name && absl::IsPermissionDenied(info.status())) return info.status();
  return absl::InvalidArgumentError(absl::StrCat(
      spec.path(), " has no split '", absl::Utf8SafeCHexEscape(spec.split()),
      "': a split is the directory of that name in it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenImageFolderReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  const FileSystem& files = context.files;
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, kImageOptionNames));
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions options,
                            ParseImageOptions(spec));
  DATASETD_ASSIGN_OR_RETURN(const std::string root, FindRoot(spec, files));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries,
                            files.List(root));
  ImageList list;
  for (const FileInfo& entry : entries) {
    if (!entry.is_directory) {
      DATASETD_RETURN_IF_ERROR(CheckLink(entry, files));
      continue;
    }
    const int64_t label = static_cast<int64_t>(list.class_names.size());
    if (list.class_names.size() == kMaxClasses) {
      return absl::InvalidArgumentError(
          absl::StrCat(root, ": more than ", kMaxClasses, " directories"));
    }
    list.class_names.push_back(PrintableUtf8(NameOf(entry)));
    std::vector<Directory> directories;
    DATASETD_RETURN_IF_ERROR(Walk(entry.path, 1, files, directories));
    std::sort(
        directories.begin(), directories.end(),
        [](const Directory& a, const Directory& b) { return a.path < b.path; });
    const size_t num_before = list.images.size();
    for (Directory& directory : directories) {
      for (FileInfo& image : directory.images) {
        list.images.push_back(std::move(image));
      }
    }
    if (list.images.size() == num_before) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.path,
                       ": a class without an image; remove the "
                       "directory, or put images into it"));
    }
    list.labels.resize(list.images.size(), label);
  }
  if (list.class_names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        root, ": holds no directory, expected one for each class"));
  }
  return OpenImageList(std::move(list), options, files, context.account);
}

}  // namespace datasetd
