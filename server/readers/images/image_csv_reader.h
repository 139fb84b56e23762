// Format image_csv: a CSV file with an image path and a label per line.
//
//   path,label        a header, optional
//   cats/1.jpg,cat
//   "a, b.png",dog
//
// The first line is a header if its first column is called path, file, filename
// or image. Options path_column and label_column may then name the columns
// (default: the first two), and there may be others. Without a header there are
// two columns. Quoting is as in RFC 4180, without line breaks in values. Blank
// lines are skipped. Paths are relative to the CSV file, or absolute, and must
// be below the data roots. A missing file is a bad sample.
//
// Labels that are all integers from 0 to 2^62 are used directly. Otherwise they
// are class names: the classes are the distinct names, sorted.
//
// No splits. Also accepts the options of image_options.h. Fields: image uint8
// [H, W, C], ragged, and label int64 []. The CSV file may have up to 256 MiB,
// held in memory while the source is opened.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader; an error in a line is INVALID_ARGUMENT with its number.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageCsvReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
