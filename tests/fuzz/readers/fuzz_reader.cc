#include "tests/fuzz/readers/fuzz_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/server/readers/read_all.h"

namespace datasetd::testing {
namespace {

void Require(bool condition, const absl::Status& status) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

bool IsAllowed(const absl::Status& status) {
  return status.ok() || status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kNotFound;
}

}  // namespace

uint8_t InputCutter::Byte() {
  if (rest_.empty()) return 0;
  const auto byte = static_cast<uint8_t>(rest_[0]);
  rest_.remove_prefix(1);
  return byte;
}

std::string InputCutter::Part() {
  const size_t low = Byte();
  const size_t high = Byte();
  const size_t length = std::min(rest_.size(), high << 8 | low);
  std::string part(rest_.substr(0, length));
  rest_.remove_prefix(length);
  return part;
}

void FuzzReader(const v1::DatasetSpec& spec, const MemoryFileSystem& files) {
  const auto whole = ReadAll(spec, files, int64_t{1} << 40);
  Require(IsAllowed(whole.status()), whole.status());
  const auto blocks = ReadAll(spec, files, 3);
  Require(whole.ok() == blocks.ok(), blocks.status());
  Require(!whole.ok() || whole->fields == blocks->fields, blocks.status());
}

}  // namespace datasetd::testing
