// Input: option fields (empty: none), an HDF5 file. Starts datasetd-hdf5 twice
// for each: whatever becomes of it, the daemon's side says what it may.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::SourceSpec spec{"hdf5", "/h.h5", "", {}};
  const std::string fields = input.Part();
  if (!fields.empty()) spec.options["fields"] = fields;
  datasetd::testing::MemoryFileSystem files;
  files.Write("/h.h5", input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
