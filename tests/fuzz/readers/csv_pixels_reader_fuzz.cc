// Input: a byte that chooses the split, a CSV file.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const bool is_all = input.Byte() % 2 == 0;
  datasetd::testing::MemoryFileSystem files;
  files.Write("/p.csv", input.Rest());
  datasetd::testing::FuzzReader(
      {"csv_pixels", "/p.csv", is_all ? "all" : "train", {}}, files);
  return 0;
}
