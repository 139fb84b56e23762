// A CSV file that names an image and its label in each line.
//
//   path,label        a header, optional
//   cats/1.jpg,cat
//   "a, b.png",dog
//
// The first line is a header if its first column is called path, file,
// filename or image; then the options path_column and label_column may name the
// columns (else the first two), and there may be others. Without a header there
// are two columns. Quotes are those of RFC 4180, but no value holds a line
// break. Blank lines are left out. Paths are relative to the CSV file, or
// absolute; they are opened below the data roots only. A file that is missing
// is a bad sample.
//
// Labels that are all integers of 0 to 2^62 are taken as they are. Else they
// are names: the classes are the different ones, sorted.
//
// No splits. Options beside those two: those of image_options.h. Fields: image
// uint8 [H, W, C], ragged, and label int64 []. A CSV file may have 256 MiB,
// which are held while it is opened.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader; of a line: INVALID_ARGUMENT with its number.
absl::StatusOr<std::unique_ptr<Reader>> OpenImageCsvReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_CSV_READER_H_
