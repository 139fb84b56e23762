// Input: a byte that chooses options, the split, then files below the folder,
// each a path and a content.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/readers/fuzz_reader.h"

namespace {

// As a disk could have it: no NUL, and no step that is empty, "." or "..".
bool IsPath(const std::string& path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string step = path.substr(begin, end - begin);
    if (step.empty() || step == "." || step == "..") return false;
    begin = end + 1;
  }
  return path.find('\0') == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const uint8_t choice = input.Byte();
  datasetd::v1::DatasetSpec spec = datasetd::testing::SpecOf(
      "image_folder", "/d", "", {{"max_pixels", "10000"}});
  if (choice & 1) datasetd::testing::SetOption(spec, "channels", "as_is");
  if (choice & 2) datasetd::testing::SetOption(spec, "apply_exif", "true");
  if (choice & 4) datasetd::testing::SetOption(spec, "fast_decode", "true");
  spec.set_split(input.Part());
  datasetd::testing::MemoryFileSystem files;
  while (!input.Rest().empty()) {
    const std::string path = input.Part();
    const std::string content = input.Part();
    // A directory cannot be a file, too.
    const bool is_taken = std::any_of(
        files.contents().begin(), files.contents().end(),
        [&](const auto& file) {
          return ("/d/" + path + "/").rfind(file.first + "/", 0) == 0 ||
                 file.first.rfind("/d/" + path + "/", 0) == 0;
        });
    if (IsPath(path) && !is_taken) files.Write("/d/" + path, content);
  }
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
