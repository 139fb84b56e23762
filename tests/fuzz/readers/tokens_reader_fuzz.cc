// Input: options as KEY=VALUE lines, a file, another one. Of .npy files if the
// options have a line npy.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::v1::DatasetSpec spec =
      datasetd::testing::SpecOf("tokens", "/{0,1}.bin");
  std::istringstream lines(input.Part());
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (line == "npy") spec.set_path("/{0,1}.npy");
    if (equals == std::string::npos) continue;
    datasetd::testing::SetOption(spec, line.substr(0, equals),
                                 line.substr(equals + 1));
  }
  datasetd::testing::MemoryFileSystem files;
  const std::string extension = spec.path().substr(6);
  files.Write("/0" + extension, input.Part());
  files.Write("/1" + extension, input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
