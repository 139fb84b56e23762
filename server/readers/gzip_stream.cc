#include "server/readers/gzip_stream.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kInputBytes = 16 << 10;
// Detects gzip or zlib by the header.
constexpr int kWindowBits = 15 + 32;

}  // namespace

GzipStream::GzipStream(const RandomAccessFile* file)
    : file_(*file), input_(kInputBytes) {}

absl::StatusOr<std::unique_ptr<GzipStream>> GzipStream::Open(
    const RandomAccessFile* file) {
  std::unique_ptr<GzipStream> stream(new GzipStream(file));
  if (inflateInit2(&stream->zlib_, kWindowBits) == Z_OK) return stream;
  return absl::ResourceExhaustedError(
      absl::StrCat(file->info().path, ": zlib: no memory to decompress"));
}

absl::Status GzipStream::Read(absl::Span<uint8_t> buffer) {
  size_t done = 0;
  while (done < buffer.size()) {
    DATASETD_ASSIGN_OR_RETURN(const size_t count,
                              ReadSome(buffer.subspan(done)));
    if (count == 0) {
      return absl::DataLossError(
          absl::StrCat(file_.info().path, ": ends early: wanted ",
                       buffer.size(), " decompressed bytes at offset ",
                       output_offset_ - done, ", found ", done));
    }
    done += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> GzipStream::ReadSome(absl::Span<uint8_t> buffer) {
  const size_t wanted = std::min(buffer.size(), size_t{1} << 30);
  zlib_.next_out = buffer.data();
  zlib_.avail_out = static_cast<uInt>(wanted);
  while (zlib_.avail_out == wanted) {
    if (zlib_.avail_in == 0) DATASETD_RETURN_IF_ERROR(FillInput());
    if (is_member_done_) {
      if (zlib_.avail_in == 0) return 0;
      inflateReset(&zlib_);
      is_member_done_ = false;
    }
    if (zlib_.avail_in == 0) {
      return absl::DataLossError(
          absl::StrCat(file_.info().path, ": gzip data ends early, at offset ",
                       input_offset_));
    }
    const int code = inflate(&zlib_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      is_member_done_ = true;
    } else if (code != Z_OK) {
      return absl::DataLossError(absl::StrCat(
          file_.info().path, ": damaged gzip data before offset ",
          input_offset_ - zlib_.avail_in,
          " (zlib: ", zlib_.msg != nullptr ? zlib_.msg : zError(code), ")"));
    }
  }
  const size_t count = wanted - zlib_.avail_out;
  output_offset_ += static_cast<int64_t>(count);
  return count;
}

absl::Status GzipStream::FillInput() {
  DATASETD_ASSIGN_OR_RETURN(
      const int64_t count, file_.ReadAt(input_offset_, absl::MakeSpan(input_)));
  input_offset_ += count;
  zlib_.next_in = input_.data();
  zlib_.avail_in = static_cast<uInt>(count);
  return absl::OkStatus();
}

}  // namespace datasetd
