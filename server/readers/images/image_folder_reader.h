// Format image_folder: one directory per class, as in
// torchvision.datasets.ImageFolder; see docs/readers.md. Memory: see
// image_list.h.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageFolderReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_FOLDER_READER_H_
