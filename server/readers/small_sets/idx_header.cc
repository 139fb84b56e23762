#include "server/readers/small_sets/idx_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr uint32_t kUint8Type = 0x08;
constexpr uint32_t kMaxExtent = 16384;

absl::StatusOr<uint32_t> ReadBigEndian(InputStream& stream) {
  uint8_t bytes[4];
  DATASETD_RETURN_IF_ERROR(stream.Read(absl::MakeSpan(bytes)));
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadIdxHeader(InputStream& stream,
                                                   int num_dimensions) {
  const std::string& path = stream.info().path;
  if (stream.info().size_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": empty, expected an IDX header"));
  }
  DATASETD_ASSIGN_OR_RETURN(const uint32_t magic, ReadBigEndian(stream));
  const uint32_t expected =
      kUint8Type << 8 | static_cast<uint32_t>(num_dimensions);
  if (magic != expected) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: offset 0: magic is 0x%08x, expected 0x%08x (IDX, uint8, %d "
        "dimensions)",
        path, magic, expected, num_dimensions));
  }
  std::vector<int64_t> extents;
  int64_t total = 1;  // at most 2^32 * 2^14 * 2^14
  for (int i = 0; i < num_dimensions; ++i) {
    DATASETD_ASSIGN_OR_RETURN(const uint32_t extent, ReadBigEndian(stream));
    if (i > 0 && (extent == 0 || extent > kMaxExtent)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": offset ", 4 + 4 * i, ": extent of dimension ",
                       i, " is ", extent, ", expected 1 to ", kMaxExtent));
    }
    extents.push_back(extent);
    total *= extent;
  }
  if (extents[0] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": offset 4: declares zero samples"));
  }
  DATASETD_RETURN_IF_ERROR(
      stream.CheckTotalBytes(4 + 4 * num_dimensions + total));
  return extents;
}

}  // namespace datasetd
