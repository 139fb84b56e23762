// Format image_csv: a CSV file with an image path and a label per line; see
// docs/readers.md. The file is held in memory while the source is opened.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader; an error in a line is INVALID_ARGUMENT with its number.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageCsvReader(
    const v1::DatasetSpec& spec, const ReaderContext& context);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
