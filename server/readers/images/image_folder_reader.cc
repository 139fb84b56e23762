#include "server/readers/images/image_folder_reader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/dataset/dataset_limits.h"
#include "server/readers/images/image_list.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/spec_checks.h"
#include "server/readers/wanted_classes.h"

namespace datasetd {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxClasses = 1 << 20;
// Extensions that are counted each by itself.
constexpr size_t kMaxKinds = 16;
// Directories beside a split whose classes are compared with its own.
constexpr size_t kMaxSiblings = 8;
constexpr absl::string_view kSplitNames[] = {
    "train", "training", "trn", "val",     "valid", "validation",
    "dev",   "test",     "tst", "testing", "eval",  "evaluation"};

absl::string_view NameOf(absl::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool IsHidden(absl::string_view path) {
  return absl::StartsWith(NameOf(path), ".");
}

bool IsSplitName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::find(std::begin(kSplitNames), std::end(kSplitNames), lower) !=
         std::end(kSplitNames);
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

// Counts files that are no images, by extension. Hidden ones are left out, as
// .DS_Store.
class OtherFiles {
 public:
  void Add(absl::string_view path) {
    if (IsHidden(path)) return;
    const absl::string_view name = NameOf(path);
    const size_t dot = name.rfind('.');
    std::string kind = dot == absl::string_view::npos
                           ? "without an extension"
                           : absl::AsciiStrToLower(name.substr(dot, 16));
    if (kinds_.size() == kMaxKinds && !kinds_.contains(kind)) kind = "other";
    ++kinds_[kind];
  }
  // "3 .gif files", "1 .txt file".
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const auto& [kind, count] : kinds_) {
      const char* const files = count == 1 ? "file" : "files";
      texts.push_back(absl::StartsWith(kind, "w")
                          ? absl::StrCat(count, " ", files, " ", kind)
                          : absl::StrCat(count, " ", kind, " ", files));
    }
    return texts;
  }

 private:
  std::map<std::string, int64_t> kinds_;
};

// The images and subdirectories of one directory, by name.
struct Directory {
  std::string path;
  std::vector<FileInfo> images;
};

class FolderScan {
 public:
  // All outlive the scan.
  FolderScan(const v1::DatasetSpec& spec, const FileSystem& files,
             ListMemory* passing, ImageList* list)
      : wanted_(spec), files_(files), passing_(*passing), list_(*list) {}

  absl::Status Scan(const std::string& root);

  // The names of the root's directories that are classes, sorted.
  const std::vector<std::string>& directories() const { return names_; }

 private:
  absl::Status AddClass(const FileInfo& entry);
  absl::StatusOr<std::vector<FileInfo>> ImagesOf(const std::string& path);
  absl::Status Walk(const std::string& path, int depth, bool is_hidden,
                    std::vector<Directory>& directories);
  absl::Status CheckFound(const std::string& root) const;
  void AddNotes();

  const WantedClasses wanted_;
  const FileSystem& files_;
  ListMemory& passing_;
  ImageList& list_;
  std::vector<std::string> names_;
  std::vector<FileInfo> loose_;  // images beside the classes
  OtherFiles other_files_;
  std::vector<std::string> hidden_;    // directories
  int64_t num_hidden_images_ = 0;      // of classes, in hidden directories
  std::vector<std::string> left_out_;  // classes
  int64_t num_left_out_ = 0;           // their images
};

absl::Status FolderScan::Scan(const std::string& root) {
  DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> entries,
                            ListCharged(files_, root, passing_));
  if (wanted_.is_given()) list_.class_names = wanted_.names();
  for (FileInfo& entry : entries) {
    if (entry.is_directory && IsHidden(entry.path)) {
      hidden_.emplace_back(NameOf(entry.path));
    } else if (entry.is_directory) {
      DATASETD_RETURN_IF_ERROR(AddClass(entry));
    } else if (HasImageExtension(entry.path)) {
      loose_.push_back(std::move(entry));
    } else {
      DATASETD_RETURN_IF_ERROR(CheckLink(entry, files_));
      other_files_.Add(entry.path);
    }
  }
  if (!names_.empty()) {
    for (const FileInfo& image : loose_) {
      DATASETD_RETURN_IF_ERROR(CheckLink(image, files_));
    }
  } else if (!wanted_.is_given()) {
    for (const FileInfo& image : loose_) {
      DATASETD_RETURN_IF_ERROR(list_.memory->Add(ListedBytes(image)));
    }
    list_.images = std::move(loose_);
  }
  DATASETD_RETURN_IF_ERROR(CheckFound(root));
  AddNotes();
  return absl::OkStatus();
}

absl::Status FolderScan::AddClass(const FileInfo& entry) {
  std::string name = PrintableUtf8(NameOf(entry.path));
  if (names_.size() == kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry.path, ": more than ", kMaxClasses, " directories beside it"));
  }
  DATASETD_RETURN_IF_ERROR(list_.memory->Add(
      2 * static_cast<int64_t>(sizeof(std::string) + name.size())));
  names_.push_back(name);
  auto label = static_cast<int64_t>(list_.class_names.size());
  bool is_left_out = false;
  if (wanted_.is_given()) {
    DATASETD_ASSIGN_OR_RETURN(const auto found, wanted_.Find(name, entry.path));
    is_left_out = !found.has_value();
    label = found.value_or(0);
  } else {
    list_.class_names.push_back(name);
  }
  DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> images, ImagesOf(entry.path));
  if (is_left_out) {
    left_out_.push_back(std::move(name));
    num_left_out_ += static_cast<int64_t>(images.size());
    for (const FileInfo& image : images) {
      list_.memory->Drop(ListedBytes(image));
    }
    return absl::OkStatus();
  }
  DATASETD_RETURN_IF_ERROR(
      list_.memory->Add(static_cast<int64_t>(images.size() * sizeof(int64_t))));
  list_.images.insert(list_.images.end(),
                      std::make_move_iterator(images.begin()),
                      std::make_move_iterator(images.end()));
  list_.labels.resize(list_.images.size(), label);
  return absl::OkStatus();
}

// Of a directory and all below it: sorted by directory, then by name.
absl::StatusOr<std::vector<FileInfo>> FolderScan::ImagesOf(
    const std::string& path) {
  std::vector<Directory> directories;
  DATASETD_RETURN_IF_ERROR(Walk(path, 1, /*is_hidden=*/false, directories));
  std::sort(
      directories.begin(), directories.end(),
      [](const Directory& a, const Directory& b) { return a.path < b.path; });
  std::vector<FileInfo> images;
  for (Directory& directory : directories) {
    images.insert(images.end(),
                  std::make_move_iterator(directory.images.begin()),
                  std::make_move_iterator(directory.images.end()));
  }
  return images;
}

// Appends `path` and all directories below it. Links may lead to a directory
// many times, so each visit is charged.
absl::Status FolderScan::Walk(const std::string& path, int depth,
                              bool is_hidden,
                              std::vector<Directory>& directories) {
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
                              ListCharged(files_, path, *list_.memory));
    for (FileInfo& entry : entries) {
      if (!entry.is_directory && !HasImageExtension(entry.path)) {
        DATASETD_RETURN_IF_ERROR(CheckLink(entry, files_));
        other_files_.Add(entry.path);
        list_.memory->Drop(ListedBytes(entry));
        continue;
      }
      if (entry.is_directory) {
        below.push_back(std::move(entry.path));
      } else {
        directory.images.push_back(std::move(entry));
      }
    }
  }
  if (is_hidden) {
    num_hidden_images_ += static_cast<int64_t>(directory.images.size());
  }
  directories.push_back(std::move(directory));
  for (const std::string& subdirectory : below) {
    DATASETD_RETURN_IF_ERROR(Walk(subdirectory, depth + 1,
                                  is_hidden || IsHidden(subdirectory),
                                  directories));
  }
  return absl::OkStatus();
}

absl::Status FolderScan::CheckFound(const std::string& root) const {
  if (!list_.images.empty()) return absl::OkStatus();
  std::string what = names_.empty()
                         ? ": holds no directory, expected one for each class"
                         : ": no image in the directories of its classes";
  if (!left_out_.empty()) {
    what = ": no image of a class that was given (classes=)";
  }
  const std::vector<std::string> others = other_files_.Texts();
  if (!others.empty()) {
    absl::StrAppend(&what, "; it has ", absl::StrJoin(others, ", "));
  }
  return absl::InvalidArgumentError(absl::StrCat(root, what));
}

void FolderScan::AddNotes() {
  if (names_.empty() && !wanted_.is_given()) {
    AddNote(
        "there are no directories of classes, so that the images have no "
        "label",
        /*is_warning=*/false, list_.notes);
  }
  const auto num_splits =
      std::count_if(names_.begin(), names_.end(), IsSplitName);
  if (!wanted_.is_given() && num_splits > 0 &&
      (num_splits > 1 || names_.size() == 1)) {
    const std::string split =
        *std::find_if(names_.begin(), names_.end(), IsSplitName);
    AddNote(absl::StrCat("the classes are ", QuotedNames(names_),
                         ", which look like splits: split='", split,
                         "' reads one of them"),
            /*is_warning=*/true, list_.notes);
  }
  AddClassNotes(num_left_out_, left_out_, list_.class_names, list_.labels,
                wanted_.is_given(), list_.notes);
  if (!hidden_.empty()) {
    AddNote(absl::StrCat("hidden directories are no classes: ",
                         QuotedNames(hidden_)),
            /*is_warning=*/false, list_.notes);
  }
  if (num_hidden_images_ > 0) {
    AddNote(absl::StrCat(CountText(num_hidden_images_, "image"),
                         num_hidden_images_ == 1 ? " is" : " are",
                         " read from hidden directories below the classes, "
                         "such as copies in .ipynb_checkpoints"),
            /*is_warning=*/true, list_.notes);
  }
  std::vector<std::string> texts = other_files_.Texts();
  if (!loose_.empty()) {
    texts.insert(
        texts.begin(),
        absl::StrCat(CountText(static_cast<int64_t>(loose_.size()), "image"),
                     " beside the directories of the classes"));
  }
  if (texts.empty()) return;
  AddNote(absl::StrCat("left out: ", absl::StrJoin(texts, ", ")),
          /*is_warning=*/false, list_.notes);
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

// The names of the directories in a directory that are not hidden, sorted.
absl::StatusOr<std::vector<std::string>> DirectoriesIn(const std::string& path,
                                                       const FileSystem& files,
                                                       ListMemory& passing) {
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries,
                            ListCharged(files, path, passing));
  std::vector<std::string> names;
  for (const FileInfo& entry : entries) {
    passing.Drop(ListedBytes(entry));
    if (entry.is_directory && !IsHidden(entry.path)) {
      names.emplace_back(PrintableUtf8(NameOf(entry.path)));
    }
  }
  return names;
}

// The first name in `names` that `others` lacks; empty: none.
std::string FirstMissing(const std::vector<std::string>& names,
                         const std::vector<std::string>& others) {
  for (const std::string& name : names) {
    if (!std::binary_search(others.begin(), others.end(), name)) return name;
  }
  return "";
}

// Warns if a split beside `root` has directories of other classes. What cannot
// be listed is not compared.
absl::Status CompareSiblings(const std::string& root,
                             std::vector<std::string> classes,
                             const FileSystem& files, ListMemory& passing,
                             ImageList& list) {
  const std::string own(NameOf(root));
  const std::string parent(root.substr(0, root.size() - own.size()));
  std::sort(classes.begin(), classes.end());
  const auto siblings = DirectoriesIn(NormalPath(parent), files, passing);
  if (absl::IsCancelled(siblings.status())) return siblings.status();
  if (!siblings.ok()) return absl::OkStatus();
  size_t num_compared = 0;
  for (const std::string& sibling : *siblings) {
    if (sibling == own || IsSplitName(sibling) != IsSplitName(own)) continue;
    if (++num_compared > kMaxSiblings) break;
    auto theirs = DirectoriesIn(JoinPath(parent, sibling), files, passing);
    if (absl::IsCancelled(theirs.status())) return theirs.status();
    if (!theirs.ok() || theirs->empty()) continue;
    std::sort(theirs->begin(), theirs->end());
    if (*theirs == classes) continue;
    // Beside a directory of any name there may be other data.
    if (!IsSplitName(own) &&
        std::none_of(
            theirs->begin(), theirs->end(), [&](const std::string& name) {
              return std::binary_search(classes.begin(), classes.end(), name);
            })) {
      continue;
    }
    const std::string missing = FirstMissing(*theirs, classes);
    const bool is_here = missing.empty();
    AddNote(absl::StrCat("'", own, "' and '", sibling,
                         "' beside it have other classes, so that their labels "
                         "differ: '",
                         is_here ? FirstMissing(classes, *theirs) : missing,
                         "' is only in '", is_here ? own : sibling,
                         "'; load both with the same classes="),
            /*is_warning=*/true, list.notes);
    list.is_unlike_sibling = true;
    return absl::OkStatus();
  }
  return absl::OkStatus();
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
  ImageList list;
  list.memory = std::make_unique<ListMemory>(context.account);
  FolderScan scan(spec, files, &passing, &list);
  DATASETD_RETURN_IF_ERROR(scan.Scan(root));
  const bool is_split = !spec.split().empty() || IsSplitName(NameOf(root));
  if (is_split && spec.class_names().empty() && !scan.directories().empty()) {
    DATASETD_RETURN_IF_ERROR(
        CompareSiblings(root, scan.directories(), files, passing, list));
  }
  return OpenImageList(std::move(list), options, files, context.account);
}

}  // namespace datasetd
