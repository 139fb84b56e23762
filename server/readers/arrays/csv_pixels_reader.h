// Format csv_pixels: grey images in a CSV file, one per row, as in FER-2013.
//
// The path is the file. Its first row names the columns, in any order and case:
//
//   pixels            integers from 0 to 255, separated by spaces, row by row
//   emotion or label  an integer; optional
//   usage             Training, PublicTest, PrivateTest; optional
//
// Other columns are ignored. Splits: train (default; Training), public_test,
// private_test, all; without a usage column every row belongs to every split.
// Images are square, or have the size of options height and width. Fields:
// image uint8 [H, W, 1], label int64 []. Buffers one row.

#ifndef DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader. Scans every row; pixels are parsed when they are read.
absl::StatusOr<std::unique_ptr<Reader>> OpenCsvPixelsReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_
