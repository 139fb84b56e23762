// Input: option fields (empty: none), an HDF5 file. What datasetd-hdf5 does
// with it, without the process around it: a fault in the HDF5 library ends
// this process, too. It is not instrumented, and guides no input.

#include <hdf5/serial/hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/readers/hdf5/hdf5_file.h"
#include "tests/fuzz/readers/fuzz_reader.h"

namespace {

constexpr uint64_t kRowsAtOnce = 3;
constexpr uint64_t kMaxReadBytes = 1 << 20;

void Require(bool condition, const absl::Status& status) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

bool IsAllowed(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) ||
         absl::IsDataLoss(status);
}

// The first rows, the last ones, and what is not there.
void ReadSome(const datasetd::Hdf5File& file, uint64_t field,
              const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  Require(words.size() >= 3, absl::InternalError(line));
  uint64_t num_rows = 0;
  Require(absl::SimpleAtoi(words[2], &num_rows) && num_rows > 0,
          absl::InternalError(line));
  uint64_t row_bytes = 8;  // at most, of an element
  for (size_t i = 3; i < words.size(); ++i) {
    uint64_t extent = 0;
    Require(absl::SimpleAtoi(words[i], &extent) && extent > 0,
            absl::InternalError(line));
    row_bytes *= extent;
  }
  std::vector<uint8_t> rows;
  Require(absl::IsInvalidArgument(file.ReadRows(field, num_rows, 1, rows)),
          absl::InternalError("a row behind the last"));
  if (row_bytes > kMaxReadBytes) return;
  const uint64_t count = std::min(num_rows, kRowsAtOnce);
  for (const uint64_t first : {uint64_t{0}, num_rows - count}) {
    const absl::Status status = file.ReadRows(field, first, count, rows);
    Require(IsAllowed(status), status);
    Require(!status.ok() || rows.size() % count == 0, status);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  datasetd::testing::InputCutter input(data, size);
  const std::string fields = input.Part();
  const std::string content = input.Rest();
  const auto read = [&](uint64_t offset, uint64_t count, void* buffer) {
    if (offset > content.size() || count > content.size() - offset) {
      return false;
    }
    memcpy(buffer, content.data() + offset, count);
    return true;
  };
  const auto file = datasetd::Hdf5File::Open(content.size(), read, fields);
  Require(IsAllowed(file.status()), file.status());
  if (file.ok()) {
    const std::vector<std::string> lines =
        absl::StrSplit(file->Describe(), '\n', absl::SkipEmpty());
    Require(!lines.empty(), absl::InternalError("no field"));
    for (size_t f = 0; f < lines.size(); ++f) ReadSome(*file, f, lines[f]);
  }
  H5close();  // all that the file left open
  return 0;
}
