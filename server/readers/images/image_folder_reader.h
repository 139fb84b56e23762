// Format image_folder: one directory per class, as in
// torchvision.datasets.ImageFolder.
//
// Classes are the subdirectories of the path, sorted by name. Samples of a
// class are the files below its directory at any depth, sorted by directory and
// then by name, whose names end in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff
// .webp in any case, so that indices equal torchvision's; files that are not
// JPEG, PNG or BMP are bad samples. A class without files is an error. A split
// is a subdirectory of the path, such as train or val; without a split the path
// itself contains the classes.
//
// Links are followed, up to 32 directories deep, within the data roots.
//
// Fields: image uint8 [H, W, C], ragged, and label int64 []. Options: those of
// image_options.h. Memory: see image_list.h.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageFolderReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
