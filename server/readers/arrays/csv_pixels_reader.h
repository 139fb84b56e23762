// Grey images in a CSV, one a row, as FER-2013 has them.
//
// The path is the file. Its first row names the columns, in any order:
//
//   pixels            whole numbers of 0 to 255 with spaces between, row by row
//   emotion or label  a whole number; may be missing
//   usage             Training, PublicTest, PrivateTest; may be missing
//
// Others are left out; upper and lower case are one. Splits: train (default;
// Training), public_test, private_test, all; without a usage column every row
// belongs to every split. Images are square, or of options height and width.
// Fields: image uint8 [H, W, 1], label int64 []. Holds one row.

#ifndef DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader. Every row is looked at here, and its pixels when it
// is read.
absl::StatusOr<std::unique_ptr<Reader>> OpenCsvPixelsReader(
    const SourceSpec& spec, const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_CSV_PIXELS_READER_H_
