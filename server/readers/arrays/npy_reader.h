// Format npy: a directory with one .npy file per field.
//
// The file's stem is the field's name; fields are sorted by name. The first
// dimension is the samples and is equal in all files. Format versions 1, 2 and
// 3; C order only; dtypes |u1 |b1 <i2 <i4 <i8 <f2 <f4 <f8, where |b1 becomes
// uint8 with values 0 and 1. No splits: a split is a directory.
//
//   [N]           a scalar, shape []
//   [N, ...]      an array, shape [...]
//   [N, H, W]     an image of shape [H, W, 1] if uint8 or bool, or if the field
//                 is called image or mask
//   [N, H, W, C]  an image of shape [H, W, C] if C is 1 to 4; required for
//                 fields called image or mask
//
// Option "images" overrides this: a comma-separated list of fields that are
// images and, with a leading minus, of fields that are not: "photo,-codes".
// Option "masks" lists in the same way the images that hold class ids
// (FieldSpec::is_mask), and makes these fields images. The default is the image
// called mask.
//
// Keeps all files open, at most 64, and reads directly into the caller's
// buffers.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenNpyReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPY_READER_H_
