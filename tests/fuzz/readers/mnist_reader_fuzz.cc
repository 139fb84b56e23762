// Input: labels, images; each plain or gzip.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::testing::MemoryFileSystem files;
  files.Write("/m/train-labels-idx1-ubyte", input.Part());
  files.Write("/m/train-images-idx3-ubyte", input.Rest());
  datasetd::testing::FuzzReader(datasetd::testing::SpecOf("mnist", "/m"),
                                files);
  return 0;
}
