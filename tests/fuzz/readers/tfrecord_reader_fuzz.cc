// Input: option features (empty: none), then tf.train.Examples, each but the
// last after its length. Framed here: the fuzzer would not find the CRCs.

#include <cstddef>
#include <cstdint>

#include "server/readers/archives/crc32c.h"
#include "tests/fuzz/readers/fuzz_reader.h"

namespace {

void AppendCrc(const std::string& of, std::string& to) {
  const uint32_t crc = datasetd::MaskedCrc32c(
      {reinterpret_cast<const uint8_t*>(of.data()), of.size()});
  for (int i = 0; i < 4; ++i) to += static_cast<char>(crc >> (8 * i));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  datasetd::SourceSpec spec{"tfrecord", "/t", "", {{"max_pixels", "10000"}}};
  const std::string features = input.Part();
  if (!features.empty()) spec.options["features"] = features;
  std::string content;
  for (const std::string& example : {input.Part(), input.Rest()}) {
    std::string length;
    for (int i = 0; i < 8; ++i) {
      length += static_cast<char>(uint64_t{example.size()} >> (8 * i));
    }
    content += length;
    AppendCrc(length, content);
    content += example;
    AppendCrc(example, content);
  }
  datasetd::testing::MemoryFileSystem files;
  files.Write("/t", content);
  datasetd::testing::FuzzReader(spec, files);
  return 0;
}
