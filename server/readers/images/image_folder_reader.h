// A folder for each class, as torchvision.datasets.ImageFolder has it.
//
// Classes are the directories in the path, in order of their names. Of each,
// the files below it at any depth are samples, ordered by directory and then by
// name, if they end in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp in any
// case, so that indices are torchvision's; those that are neither JPEG, PNG nor
// BMP are bad samples. A class without a file is an error. A split is a
// directory in the path, such as train and val; without one the path itself
// holds the classes.
//
// Links are followed, 32 directories deep, but not out of the data roots.
//
// Fields: image uint8 [H, W, C], ragged, and label int64 []. Options: those of
// image_options.h. Holds what image_list.h says.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageFolderReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
