// Input: option fields (empty: none), a tar file.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::v1::DatasetSpec spec = datasetd::testing::SpecOf(
      "webdataset", "/t.tar", "",
      {{"max_pixels", "10000"}, {"max_inflated_bytes", "1000000"}});
  const std::string fields = input.Part();
  if (!fields.empty()) datasetd::testing::SetOption(spec, "fields", fields);
  datasetd::testing::MemoryFileSystem files;
  files.Write("/t.tar", input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
