// Format npz: the arrays of one .npz file, as written by numpy.savez and
// savez_compressed.
//
// Members become fields by the rules of format npy (npy_reader.h), including
// the options images and masks. Option fields selects and renames members, in
// order: "image:x_train,label:y_train"; by default every member is a field,
// sorted by name. No splits. Holds 64 KiB per field.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenNpzReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_
