#include "server/readers/small_sets/idx_file.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "server/readers/gzip_stream.h"
#include "server/readers/inflated_file.h"

namespace datasetd {
namespace {

constexpr uint32_t kUint8Type = 0x08;
constexpr uint32_t kMaxExtent = 16384;

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

absl::Status CheckMagic(const std::string& path, const uint8_t* header,
                        int num_dimensions) {
  const uint32_t magic = BigEndian(header);
  const uint32_t expected =
      kUint8Type << 8 | static_cast<uint32_t>(num_dimensions);
  if (magic == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: offset 0: magic is 0x%08x, expected 0x%08x (IDX, uint8, %d "
      "dimensions)",
      path, magic, expected, num_dimensions));
}

absl::StatusOr<std::vector<int64_t>> ParseExtents(const std::string& path,
                                                  const uint8_t* header,
                                                  int num_dimensions) {
  std::vector<int64_t> extents;
  for (int i = 0; i < num_dimensions; ++i) {
    const uint32_t extent = BigEndian(header + 4 + 4 * i);
    if (i > 0 && (extent == 0 || extent > kMaxExtent)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": offset ", 4 + 4 * i, ": extent of dimension ",
                       i, " is ", extent, ", expected 1 to ", kMaxExtent));
    }
    extents.push_back(extent);
  }
  if (extents[0] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": offset 4: declares zero samples"));
  }
  return extents;
}

// Checks that the file has `size_bytes`, inflated if it is compressed.
absl::Status CheckSize(const RandomAccessFile& file, bool is_compressed,
                       int64_t size_bytes) {
  const FileInfo& info = file.info();
  if (!is_compressed) {
    if (info.size_bytes == size_bytes) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(info.path, ": ", info.size_bytes,
                                            " bytes, expected ", size_bytes,
                                            " as its header declares"));
  }
  if (size_bytes / kMaxExpansion > info.size_bytes) {
    return absl::DataLossError(absl::StrCat(
        info.path, ": ", info.size_bytes, " bytes of gzip cannot hold the ",
        size_bytes, " bytes that its header declares"));
  }
  DATASETD_ASSIGN_OR_RETURN(const int64_t inflated_bytes,
                            InflatedBytes(file, size_bytes));
  if (inflated_bytes == size_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      info.path, ": ends early: ", inflated_bytes,
      " decompressed bytes, expected ", size_bytes, " as its header declares"));
}

}  // namespace

absl::StatusOr<IdxFile> OpenIdxFile(std::unique_ptr<RandomAccessFile> file,
                                    int num_dimensions) {
  IdxFile idx = {.info = file->info(), .header_bytes = 4 + 4 * num_dimensions};
  if (idx.info.size_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(idx.info.path, ": empty, expected an IDX header"));
  }
  uint8_t header[16] = {};
  DATASETD_RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(header, 2)).status());
  idx.is_compressed = header[0] == 0x1f && header[1] == 0x8b;
  std::unique_ptr<GzipStream> stream;
  if (idx.is_compressed) {
    DATASETD_ASSIGN_OR_RETURN(stream, GzipStream::Open(file.get()));
  }
  // In order.
  const auto read = [&](int64_t begin, int64_t end) {
    const auto bytes =
        absl::MakeSpan(header + begin, static_cast<size_t>(end - begin));
    return stream != nullptr ? stream->Read(bytes)
                             : ReadExactly(*file, begin, bytes);
  };
  DATASETD_RETURN_IF_ERROR(read(0, 4));
  DATASETD_RETURN_IF_ERROR(CheckMagic(idx.info.path, header, num_dimensions));
  DATASETD_RETURN_IF_ERROR(read(4, idx.header_bytes));
  DATASETD_ASSIGN_OR_RETURN(
      idx.extents, ParseExtents(idx.info.path, header, num_dimensions));
  int64_t size_bytes = 1;  // at most 2^32 * 2^14 * 2^14
  for (const int64_t extent : idx.extents) size_bytes *= extent;
  size_bytes += idx.header_bytes;
  DATASETD_RETURN_IF_ERROR(CheckSize(*file, idx.is_compressed, size_bytes));
  if (idx.is_compressed) {
    idx.values = OpenInflatedFile(std::move(file), size_bytes);
  } else {
    idx.values = std::move(file);
  }
  return idx;
}

}  // namespace datasetd
