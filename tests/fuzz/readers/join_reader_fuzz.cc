// Input: options as KEY=VALUE lines; the rest is a file of records. There are
// two images beside it, in folders and in a list, and an array.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "tests/fuzz/readers/fuzz_reader.h"

namespace {

// 2 x 1 grey pixels.
std::string Bitmap() {
  std::string image(
      "BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0"
      "\0\0\x01\0\x18\0",
      30);
  image.resize(62, '\5');
  return image;
}

// uint8 [2, 3].
std::string Array() {
  std::string text =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }";
  text.resize(117, ' ');
  text += '\n';
  return std::string("\x93NUMPY\1\0\x76\0", 10) + text + "abcdef";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::v1::DatasetSpec spec = datasetd::testing::SpecOf("join", "/j");
  std::istringstream lines(input.Part());
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    datasetd::testing::SetOption(spec, line.substr(0, equals),
                                 line.substr(equals + 1));
  }
  datasetd::testing::MemoryFileSystem files;
  files.Write("/j/faces/a/1.bmp", Bitmap());
  files.Write("/j/faces/b/2.bmp", Bitmap());
  files.Write("/j/list.csv", "faces/a/1.bmp,5\nfaces/b/2.bmp,7\n");
  files.Write("/j/audio/vec.npy", Array());
  files.Write("/j/r.bin", input.Rest());
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
