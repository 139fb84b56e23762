// Datasets of one HDF5 file.
//
// The path is the file. Option fields chooses and names datasets, by their path
// in the file: "image:train/images,label:train/labels"; without it all datasets
// of numbers in the root group are fields, by name. The first dimension is the
// samples, and all agree in it. What is an image follows the rules of
// npy_reader.h, and so do the options images and masks. Integers and floats of
// either byte order; int8, uint16 and uint32, which datasetd has not, are
// widened to int16, int32, int64; float16 little-endian; h5py's bool as uint8.
// Chunked and compressed (gzip, shuffle, szip, ...) as the library can; filters
// from shared libraries, external storage, external links and virtual datasets
// are not read.
//
// A declared size that is more than 1032 times that of the file is refused. The
// library runs in a process of its own, which may use 2 GiB (hdf5_wire.h);
// without the program datasetd-hdf5 there is no such format. No splits.

#ifndef DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_
#define DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"
#include "server/readers/reader.h"

namespace datasetd {

// Errors as of OpenReader; FAILED_PRECONDITION without datasetd-hdf5.
absl::StatusOr<std::unique_ptr<Reader>> OpenHdf5Reader(const SourceSpec& spec,
                                                       const FileSystem& files);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_HDF5_READER_H_
