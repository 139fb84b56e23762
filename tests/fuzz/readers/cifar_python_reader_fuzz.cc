// Input: a byte that chooses the format, the names' pickle (empty: none), the
// test batch's.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const bool is_cifar10 = input.Byte() % 2 == 0;
  const std::string names = input.Part();
  datasetd::testing::MemoryFileSystem files;
  if (!names.empty()) {
    files.Write(is_cifar10 ? "/c/batches.meta" : "/c/meta", names);
  }
  files.Write(is_cifar10 ? "/c/test_batch" : "/c/test", input.Rest());
  datasetd::testing::FuzzReader(
      {is_cifar10 ? "cifar10_python" : "cifar100_python", "/c", "test", {}},
      files);
  return 0;
}
