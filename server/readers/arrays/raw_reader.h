// Records of one size, one after another, in one file.
//
// Options:
//   dtype         of the data; default uint8. Little-endian
//   shape         of a record's data, as 32x32x3; needed
//   layout        hwc (default), chw: planes, which are interleaved
//   header_bytes  before the first record; default 0
//   label_bytes   0 (default), 1, 2, 4, 8: a whole number without sign
//   label         first (default), last: where in the record it is
//   name          of the data's field
//
// The data is an image of field `image` where dtype is uint8 or float32 and the
// shape is [H, W], which becomes [H, W, 1], or [H, W, C] with C of 1 to 4;
// otherwise an array of field `data`. The label is field `label`, uint8 where
// it is one byte, else int64. No splits. The format declares no count, so a
// file cut off at the end of a record looks whole.

#ifndef DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenRawReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_RAW_READER_H_
