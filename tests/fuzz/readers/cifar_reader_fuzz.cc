// Input: a byte that chooses cifar10 or cifar100, class names, records.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const bool is_cifar100 = input.Byte() & 1;
  const std::string names = input.Part();
  datasetd::testing::MemoryFileSystem files;
  if (is_cifar100) {
    if (!names.empty()) files.Write("/c/fine_label_names.txt", names);
    files.Write("/c/test.bin", input.Rest());
  } else {
    if (!names.empty()) files.Write("/c/batches.meta.txt", names);
    files.Write("/c/test_batch.bin", input.Rest());
  }
  datasetd::testing::FuzzReader(
      datasetd::testing::SpecOf(is_cifar100 ? "cifar100" : "cifar10", "/c",
                                "test"),
      files);
  return 0;
}
