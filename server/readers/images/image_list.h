// A source of image files: field image, uint8 [H, W, C] and ragged, and field
// label, int64 or float32, if they have one.
//
// Used by the folder and list readers. Holds path, size and time of every file,
// which are charged to DecodeAccount::lists; keeps no file open. A file of more
// than 256 MiB is a bad sample.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_LIST_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_LIST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file_system.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/reader.h"

namespace datasetd {

// True for the extensions that torchvision's ImageFolder takes, in any case.
bool HasImageExtension(absl::string_view name);

struct ImageList {
  // Files that are not images, such as the list itself; listed before the
  // images in SourceInfo::files.
  std::vector<FileInfo> other_files;
  std::vector<FileInfo> images;
  // One per image in one of them; both empty: no field label.
  std::vector<int64_t> labels;
  std::vector<float> targets;
  std::vector<std::string> class_names;
  // Those of SourceInfo.
  std::vector<LoadNote> notes;
  bool is_unlike_sibling = false;
  // Has paid for all of it. Not null.
  std::unique_ptr<ListMemory> memory;
};

// Looks for the first image that can be decoded, for the field's shape, on the
// account. `files` outlives the source.
//   INVALID_ARGUMENT  the list is empty, or the first 1000 images are all bad;
//                     then the message has the error of the first
absl::StatusOr<std::unique_ptr<Reader>> OpenImageList(
    ImageList list, const ImageOptions& options, const FileSystem& files,
    const DecodeAccount& account);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_LIST_H_
