// A directory of one .npy file per field.
//
// The file's stem is the field's name, and the fields stand in the order of
// their names. The first dimension is the samples, and all files agree in it.
// Format versions 1, 2 and 3; C order only; dtypes |u1 |b1 <i2 <i4 <i8 <f2 <f4
// <f8, where |b1 becomes uint8 of 0 and 1. No splits: a split is a directory.
//
//   [N]           a scalar, shape []
//   [N, ...]      an array, shape [...]
//   [N, H, W]     an image of shape [H, W, 1] if uint8 or bool, or if the field
//                 is called image or mask
//   [N, H, W, C]  an image of shape [H, W, C] if C is 1 to 4; what is called
//                 image or mask must be so
//
// Option "images" overrules this: a comma-separated list of fields that are
// images and, with a minus before, of fields that are not: "photo,-codes".
// Option "masks" says likewise which images hold classes (FieldSpec::is_mask),
// and makes an image of what it names. Without it that is the image called
// mask.
//
// Keeps all files open, at most 64, and reads straight into the caller's
// buffers.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenNpyReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
