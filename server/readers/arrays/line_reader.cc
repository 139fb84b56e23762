#include "server/readers/arrays/line_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kReadBytes = 64 << 10;

}  // namespace

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    const bool is_last =
        end == std::string::npos && file_offset_ == file_->info().size_bytes;
    if (is_last && begin_ == buffer_.size()) return false;
    if (end != std::string::npos || is_last) {
      *line = absl::string_view(buffer_).substr(begin_, end - begin_);
      line_offset_ =
          file_offset_ - static_cast<int64_t>(buffer_.size() - begin_);
      begin_ = is_last ? buffer_.size() : end + 1;
      ++line_number_;
      *line = absl::StripSuffix(*line, "\r");
      if (line->find('\0') == absl::string_view::npos) return true;
      return absl::InvalidArgumentError(absl::StrCat(file_->info().path,
                                                     ": line ", line_number_,
                                                     " holds a NUL: no text"));
    }
    searched = buffer_.size() - begin_;
    if (searched > kMaxLineBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_->info().path, ": line ", line_number_ + 1,
                       " is longer than ", kMaxLineBytes, " bytes"));
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    buffer_.resize(searched + kReadBytes);
    DATASETD_ASSIGN_OR_RETURN(
        const int64_t count,
        file_->ReadAt(file_offset_, absl::MakeSpan(reinterpret_cast<uint8_t*>(
                                                       &buffer_[searched]),
                                                   kReadBytes)));
    buffer_.resize(searched + static_cast<size_t>(count));
    file_offset_ += count;
    if (count == 0 && file_offset_ < file_->info().size_bytes) {
      return absl::DataLossError(absl::StrCat(
          file_->info().path, ": ends at offset ", file_offset_, ", it was ",
          file_->info().size_bytes, " bytes long when it was opened"));
    }
  }
}

}  // namespace datasetd
