// Input: a byte that chooses the options, a CSV file. There are two images.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const uint8_t choice = input.Byte();
  std::map<std::string, std::string> options;
  if (choice & 1) options["label_column"] = "c";
  if (choice & 2) options["path_column"] = "file";
  if (choice & 4) options["label_kind"] = "class";
  if (choice & 8) options["label_column"] = "1";
  datasetd::testing::MemoryFileSystem files;
  // 2 x 1 grey pixels.
  std::string image(
      "BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0"
      "\0\0\x01\0\x18\0",
      30);
  image.resize(62, '\5');
  files.Write("/d/1", image);
  files.Write("/d/2", image);
  files.Write("/d/list.csv", input.Rest());
  auto spec =
      datasetd::testing::SpecOf("image_csv", "/d/list.csv", "", options);
  if (choice & 16) spec.add_class_names("a");
  spec.set_ignore_other_classes((choice & 48) == 48);
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
