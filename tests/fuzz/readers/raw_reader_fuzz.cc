// Input: options as KEY=VALUE lines, a file of records.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::v1::DatasetSpec spec = datasetd::testing::SpecOf("raw", "/r.bin");
  std::istringstream lines(input.Part());
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    datasetd::testing::SetOption(spec, line.substr(0, equals),
                                 line.substr(equals + 1));
  }
  datasetd::testing::MemoryFileSystem files;
  files.Write("/r.bin", input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
