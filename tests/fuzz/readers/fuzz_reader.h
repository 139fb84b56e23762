// The parts that the fuzz harnesses of readers share.

#ifndef DATASETD_TESTS_FUZZ_READERS_FUZZ_READER_H_
#define DATASETD_TESTS_FUZZ_READERS_FUZZ_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "datasetd/v1/dataset.pb.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {

// Cuts an input into parts: each but the last follows its length, two bytes,
// little-endian.
class InputCutter {
 public:
  InputCutter(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  // 0 at the end.
  uint8_t Byte();
  std::string Part();
  std::string Rest() { return std::string(rest_); }

 private:
  std::string_view rest_;
};

// Opens and reads the source in blocks of two sizes. Aborts if a status is not
// one that damaged files may give, or if the two disagree.
void FuzzReader(const v1::DatasetSpec& spec, const MemoryFileSystem& files);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_FUZZ_READERS_FUZZ_READER_H_
