#include "server/readers/gzip_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kInputBytes = 16 << 10;
// Detects gzip or zlib by the header.
constexpr int kWindowBits = 15 + 32;

class ZlibStream final : public GzipStream {
 public:
  explicit ZlibStream(const RandomAccessFile* file)
      : file_(*file), input_(kInputBytes) {}
  ~ZlibStream() override { inflateEnd(&zlib_); }

  // REQUIRES: called once, first.
  absl::Status Initialize() {
    if (inflateInit2(&zlib_, kWindowBits) == Z_OK) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(file_.info().path, ": zlib: no memory to decompress"));
  }

  absl::Status Read(absl::Span<uint8_t> buffer) override {
    size_t done = 0;
    while (done < buffer.size()) {
      DATASETD_ASSIGN_OR_RETURN(const size_t count,
                                Inflate(buffer.subspan(done)));
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

  absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> buffer) override {
    return Inflate(buffer);
  }

 private:
  // Decompresses at least one byte; returns 0 only at the end of the last
  // member.
  absl::StatusOr<size_t> Inflate(absl::Span<uint8_t> buffer) {
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
            absl::StrCat(file_.info().path,
                         ": gzip data ends early, at offset ", input_offset_));
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

  absl::Status FillInput() {
    DATASETD_ASSIGN_OR_RETURN(
        const int64_t count,
        file_.ReadAt(input_offset_, absl::MakeSpan(input_)));
    input_offset_ += count;
    zlib_.next_in = input_.data();
    zlib_.avail_in = static_cast<uInt>(count);
    return absl::OkStatus();
  }

  const RandomAccessFile& file_;
  std::vector<uint8_t> input_;
  z_stream zlib_ = {};
  bool is_member_done_ = false;
  int64_t input_offset_ = 0;   // position in the file after the bytes read
  int64_t output_offset_ = 0;  // decompressed
};

}  // namespace

absl::StatusOr<std::unique_ptr<GzipStream>> OpenGzipStream(
    const RandomAccessFile* file) {
  auto stream = std::make_unique<ZlibStream>(file);
  DATASETD_RETURN_IF_ERROR(stream->Initialize());
  return stream;
}

}  // namespace datasetd
