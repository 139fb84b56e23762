// Arrays in one .npz file, as numpy.savez and savez_compressed write it.
//
// Fields are made of members as those of format npy are of files
// (npy_reader.h); so are the options images and masks. Option fields chooses
// and renames members, in its order: "image:x_train,label:y_train"; without it
// every member is a field, in the order of their names. No splits. Holds 64 KiB
// for each field.

#ifndef DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader.
absl::StatusOr<std::unique_ptr<Reader>> OpenNpzReader(const SourceSpec& spec,
                                                      const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_NPZ_READER_H_
