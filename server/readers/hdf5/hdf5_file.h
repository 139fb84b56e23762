// The datasets of one HDF5 file, as read by the worker. Not thread-safe; one
// instance at a time.
//
// The library opens no files: bytes come from `read`. Features that read other
// files (external storage, external links, virtual datasets) are refused.

#ifndef DATASETD_SERVER_READERS_HDF5_HDF5_FILE_H_
#define DATASETD_SERVER_READERS_HDF5_HDF5_FILE_H_

#include <hdf5/serial/hdf5.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace datasetd {

class Hdf5File {
 public:
  // Fills `buffer`; false if that is impossible.
  using ReadBytes =
      std::function<bool(uint64_t offset, uint64_t size, void* buffer)>;

  // Makes the library acquire everything it needs from the system except
  // memory.
  static void InitLibrary();

  // Opens the file and the datasets of `fields` ("image:x,label:y") or, if that
  // is empty, all numeric datasets in the root group, by name. Errors omit the
  // file name.
  static absl::StatusOr<Hdf5File> Open(uint64_t size_bytes, ReadBytes read,
                                       const std::string& fields);

  // One line per field: name, dtype, extents.
  std::string Describe() const;

  // Reads rows of a field, in C order and native byte order. Reuses the
  // vector's memory.
  //   INVALID_ARGUMENT  the rows do not exist
  //   DATA_LOSS         the library cannot read them
  absl::Status ReadRows(uint64_t field, uint64_t first, uint64_t count,
                        std::vector<uint8_t>& rows) const;

 private:
  struct Field {
    std::string name;
    std::string source;
    std::string dtype;
    hid_t dataset = -1;
    hid_t memory_type = -1;
    std::vector<hsize_t> extents;
    uint64_t row_bytes = 0;
  };

  absl::Status AddField(const std::string& name, const std::string& source);

  hid_t file_ = -1;
  std::vector<Field> fields_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_HDF5_FILE_H_
