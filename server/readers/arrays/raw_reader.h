// Format raw: fixed-size records in one file.
//
// Options:
//   dtype         of the data; default uint8. Little-endian
//   shape         of a record's data, such as 32x32x3; required
//   layout        hwc (default), or chw: planes, which are interleaved
//   header_bytes  before the first record; default 0
//   label_bytes   0 (default), 1, 2, 4 or 8: an unsigned integer
//   label         first (default) or last: its position in the record
//   name          of the data's field
//
// The data is an image, field `image`, if dtype is uint8 or float32 and the
// shape is [H, W], which becomes [H, W, 1], or [H, W, C] with C from 1 to 4;
// otherwise an array, field `data`. The label is field `label`: uint8 if it is
// one byte, else int64. No splits. The format has no record count, so a file
// truncated at a record boundary is not detected.

#ifndef DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenRawReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_
