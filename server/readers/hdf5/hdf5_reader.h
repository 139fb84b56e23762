// Format hdf5: datasets of one HDF5 file.
//
// The path is the file. Option fields selects and names datasets by their path
// in the file: "image:train/images,label:train/labels"; by default all numeric
// datasets in the root group are fields, by name. The first dimension is the
// samples and is equal in all datasets. Images, and the options images and
// masks, follow the rules of npy_reader.h. Integers and floats may have either
// byte order; int8, uint16 and uint32, which datasetd does not support, are
// widened to int16, int32 and int64; float16 must be little-endian; h5py's bool
// becomes uint8. Chunks and compression (gzip, shuffle, szip, ...) are
// supported as in the library; filters from shared libraries, external storage,
// external links and virtual datasets are not.
//
// A declared size of more than 1032 times the file's size is refused. The
// library runs in a separate process, limited to 2 GiB (hdf5_wire.h); without
// the program datasetd-hdf5 the format is not available. No splits.

#ifndef DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_
#define DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as OpenReader; FAILED_PRECONDITION without datasetd-hdf5.
absl::StatusOr<std::unique_ptr<Reader>> OpenHdf5Reader(const SourceSpec& spec,
                                                       const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_
