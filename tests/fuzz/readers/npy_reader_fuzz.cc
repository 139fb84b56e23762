// Input: option images (empty: none), two .npy files.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::v1::DatasetSpec spec = datasetd::testing::SpecOf("npy", "/n");
  const std::string images = input.Part();
  if (!images.empty()) datasetd::testing::SetOption(spec, "images", images);
  datasetd::testing::MemoryFileSystem files;
  files.Write("/n/image.npy", input.Part());
  const std::string second = input.Rest();
  if (!second.empty()) files.Write("/n/label.npy", second);
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
