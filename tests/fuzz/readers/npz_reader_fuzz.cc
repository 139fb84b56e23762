// Input: option fields (empty: none), an .npz file.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::SourceSpec spec{"npz", "/n.npz", "", {}};
  const std::string fields = input.Part();
  if (!fields.empty()) spec.options["fields"] = fields;
  datasetd::testing::MemoryFileSystem files;
  files.Write("/n.npz", input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
