// The datasets of one HDF5 file, for the worker. Not thread-safe. One at a
// time.
//
// The library opens nothing: bytes come from `read`. What would read another
// file (external storage, external links, virtual datasets) is refused.

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
  // Fills `buffer`; false where that cannot be.
  using ReadBytes =
      std::function<bool(uint64_t offset, uint64_t size, void* buffer)>;

  // All that the library wants to have of the system; later it needs memory
  // alone.
  static void InitLibrary();

  // Opens the file and the datasets: those of `fields` ("image:x,label:y"), or,
  // where it is empty, all of numbers in the root group, by name. Errors leave
  // out the file's name.
  static absl::StatusOr<Hdf5File> Open(uint64_t size_bytes, ReadBytes read,
                                       const std::string& fields);

  // A line for each field: name, dtype, extents.
  std::string Describe() const;

  // Rows of a field, in C order and the machine's byte order. The vector is
  // kept and used again.
  //   INVALID_ARGUMENT  there are no such rows
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
