// Input: the dict literal.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/readers/npy_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = datasetd::ParseNpyDict(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!header.ok()) {
    if (header.status().code() != absl::StatusCode::kInvalidArgument) abort();
    return 0;
  }
  // Exact arithmetic: the product of the extents is what was promised.
  __int128 bytes = datasetd::DtypeSizeBytes(header->dtype);
  if (header->shape.empty()) abort();
  for (const int64_t extent : header->shape) {
    if (extent <= 0) abort();
    bytes *= extent;
    if (bytes > INT64_MAX) abort();
  }
  if (bytes != header->data_bytes) abort();
  return 0;
}
