#include "server/readers/input_stream.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/gzip_stream.h"

namespace datasetd {
namespace {

class PlainStream : public InputStream {
 public:
  explicit PlainStream(std::unique_ptr<RandomAccessFile> file)
      : file_(std::move(file)) {}

  const FileInfo& info() const override { return file_->info(); }

  absl::Status Read(absl::Span<uint8_t> buffer) override {
    DATASETD_RETURN_IF_ERROR(ReadExactly(*file_, offset_, buffer));
    offset_ += static_cast<int64_t>(buffer.size());
    return absl::OkStatus();
  }

  absl::Status CheckTotalBytes(int64_t expected_bytes) const override {
    if (info().size_bytes == expected_bytes) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(info().path, ": ", info().size_bytes, " bytes, expected ",
                     expected_bytes, " as its header declares"));
  }

  absl::Status ExpectEnd() override { return CheckTotalBytes(offset_); }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  int64_t offset_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InputStream>> OpenInputStream(
    std::unique_ptr<RandomAccessFile> file) {
  uint8_t magic[2] = {};
  DATASETD_RETURN_IF_ERROR(file->ReadAt(0, absl::MakeSpan(magic)).status());
  if (magic[0] == 0x1f && magic[1] == 0x8b) {
    return OpenGzipStream(std::move(file));
  }
  return std::make_unique<PlainStream>(std::move(file));
}

}  // namespace datasetd
