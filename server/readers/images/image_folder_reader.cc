#include "server/readers/images/image_folder_reader.h"

#include <algorithm>
#include <memory>
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
#include "server/readers/list_memory.h"
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
// directory, whose samples must not be missing silently. One that dangles does
// not, nor does what is neither file nor directory.
absl::Status CheckLink(const FileInfo& entry, const FileSystem& files) {
  if (entry.size_bytes != 0) return absl::OkStatus();
  const auto info = files.Stat(entry.path);
  if (absl::IsNotFound(info.status()) ||
      absl::IsInvalidArgument(info.status())) {
    return absl::OkStatus();
  }
  DATASETD_RETURN_IF_ERROR(info.status());
  if (!info->is_directory) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(entry.path,
                   ": became a directory while the load began: load the "
                   "dataset again when its files are complete"));
}

// The images and subdirectories of one directory, by name.
struct Directory {
  std::string path;
  std::vector<FileInfo> images;
};

// Appends `path` and all directories below it. Links may lead to a directory
// many times, so each visit is charged.
absl::Status Walk(const std::string& path, int depth, const FileSystem& files,
                  ListMemory& memory, std::vector<Directory>& directories) {
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kMaxDepth,
                     " directories deep; is there a link to a directory above "
                     "itself?"));
  }
  Directory directory = {.path = path};
  std::vector<std::string> below;
  {
    DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> entries,
                              ListCharged(files, path, memory));
    for (FileInfo& entry : entries) {
      if (!entry.is_directory && !IsImageName(NameOf(entry))) {
        DATASETD_RETURN_IF_ERROR(CheckLink(entry, files));
        memory.Drop(ListedBytes(entry));
        continue;
      }
      if (entry.is_directory) {
        below.push_back(std::move(entry.path));
      } else {
        directory.images.push_back(std::move(entry));
      }
    }
  }
  directories.push_back(std::move(directory));
  for (const std::string& subdirectory : below) {
    DATASETD_RETURN_IF_ERROR(
        Walk(subdirectory, depth + 1, files, memory, directories));
  }
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
  if (is_name && !info.ok() && !absl::IsNotFound(info.status())) {
    return info.status();
  }
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
  ListMemory passing(context.account);
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries,
                            ListCharged(files, root, passing));
  ImageList list;
  list.memory = std::make_unique<ListMemory>(context.account);
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
    std::string class_name = PrintableUtf8(NameOf(entry));
    DATASETD_RETURN_IF_ERROR(list.memory->Add(
        static_cast<int64_t>(sizeof(std::string) + class_name.size())));
    list.class_names.push_back(std::move(class_name));
    std::vector<Directory> directories;
    DATASETD_RETURN_IF_ERROR(
        Walk(entry.path, 1, files, *list.memory, directories));
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
    DATASETD_RETURN_IF_ERROR(list.memory->Add(static_cast<int64_t>(
        (list.images.size() - num_before) * sizeof(int64_t))));
    list.labels.resize(list.images.size(), label);
  }
  if (list.class_names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        root, ": holds no directory, expected one for each class"));
  }
  return OpenImageList(std::move(list), options, files, context.account);
}

}  // namespace datasetd
