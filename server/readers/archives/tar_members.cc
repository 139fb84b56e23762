#include "server/readers/archives/tar_members.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int64_t kBlockBytes = 512;
constexpr int64_t kKindOffset = 156;  // in a header
constexpr size_t kReadBytes = 8 * kBlockBytes;
// libarchive's time for an access control list grows with its square.
constexpr int64_t kMaxHeaderBytes = 72 << 10;

bool LeadsOut(absl::string_view name) {
  if (name.empty() || name[0] == '/') return true;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") return true;
  }
  return false;
}

}  // namespace

// The file as libarchive reads it, in whole blocks.
class TarMembers::Stream {
 public:
  explicit Stream(const RandomAccessFile* file)
      : file_(*file), buffer_(kReadBytes) {}

  const FileInfo& info() const { return file_.info(); }
  // The status of the last read.
  const absl::Status& status() const { return status_; }

  // Limits what is read from here on.
  void AllowHeaders() { left_bytes_ = kMaxHeaderBytes; }

  // Returns the next bytes; none at the end, or if status() is an error.
  absl::Span<const uint8_t> Read() {
    begin_ = end_;
    if (left_bytes_ <= 0) {
      status_ = absl::DataLossError(absl::StrCat(
          info().path, ": offset ", begin_, ": a member has more than ",
          kMaxHeaderBytes, " bytes of headers"));
      return {};
    }
    const auto count = file_.ReadAt(begin_, absl::MakeSpan(buffer_));
    status_ = count.status();
    if (!count.ok()) return {};
    end_ += *count;
    left_bytes_ -= *count;
    return absl::MakeConstSpan(buffer_).first(static_cast<size_t>(*count));
  }

  // Returns the number of skipped bytes; fewer only at the end.
  int64_t Skip(int64_t count) {
    const int64_t left = std::max<int64_t>(info().size_bytes - end_, 0);
    count = std::clamp<int64_t>(count, 0, left);
    end_ += count;
    begin_ = end_;
    return count;
  }

  // A byte of what was read last; -1 for others.
  int ByteAt(int64_t offset) const {
    if (offset < begin_ || offset >= end_) return -1;
    return buffer_[static_cast<size_t>(offset - begin_)];
  }

  // True if all bytes from `offset`, which is in what was read last, are zeros.
  absl::StatusOr<bool> IsZeroFrom(int64_t offset) {
    while (true) {
      for (; offset < end_; ++offset) {
        if (ByteAt(offset) != 0) return false;
      }
      AllowHeaders();
      const bool is_end = Read().empty();
      DATASETD_RETURN_IF_ERROR(status_);
      if (is_end) return true;
    }
  }

  // libarchive's callbacks.
  static la_ssize_t OnRead(struct archive*, void* self, const void** bytes) {
    Stream& stream = *static_cast<Stream*>(self);
    const absl::Span<const uint8_t> read = stream.Read();
    *bytes = read.data();
    return stream.status_.ok() ? static_cast<la_ssize_t>(read.size()) : -1;
  }
  static la_int64_t OnSkip(struct archive*, void* self, la_int64_t count) {
    return static_cast<Stream*>(self)->Skip(count);
  }

 private:
  const RandomAccessFile& file_;
  std::vector<uint8_t> buffer_;  // [begin_, end_) of the file
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t left_bytes_ = 0;
  absl::Status status_;
};

template <typename... Parts>
absl::Status TarMembers::Damaged(const Parts&... parts) const {
  return absl::DataLossError(absl::StrCat(stream_->info().path, ": offset ",
                                          header_offset_, ": ", parts...));
}

template <typename... Parts>
absl::Status TarMembers::Invalid(const Parts&... parts) const {
  return absl::InvalidArgumentError(absl::StrCat(
      stream_->info().path, ": offset ", header_offset_, ": ", parts...));
}

void TarMembers::FreeArchive::operator()(struct archive* archive) const {
  archive_read_free(archive);
}

TarMembers::TarMembers(const RandomAccessFile* file)
    : stream_(std::make_unique<Stream>(file)), archive_(archive_read_new()) {}

TarMembers::~TarMembers() = default;

absl::Status TarMembers::Open() {
  struct archive* const archive = archive_.get();
  if (archive == nullptr ||
      archive_read_support_format_tar(archive) != ARCHIVE_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat(stream_->info().path, ": libarchive got no memory"));
  }
  archive_read_set_callback_data(archive, stream_.get());
  archive_read_set_read_callback(archive, &Stream::OnRead);
  archive_read_set_skip_callback(archive, &Stream::OnSkip);
  stream_->AllowHeaders();
  is_open_ = archive_read_open1(archive) == ARCHIVE_OK;
  DATASETD_RETURN_IF_ERROR(stream_->status());
  if (is_open_) return absl::OkStatus();
  return Invalid(
      "no header of a tar archive, or a damaged one; of compressed archives, "
      "gzip is read");
}

absl::StatusOr<bool> TarMembers::Next(TarMember* member) {
  if (!is_open_) DATASETD_RETURN_IF_ERROR(Open());
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const bool has_entry, NextEntry());
    if (!has_entry) {
      DATASETD_RETURN_IF_ERROR(CheckEnd());
      return false;
    }
    DATASETD_ASSIGN_OR_RETURN(const bool is_file, Take(member));
    if (is_file) return true;
  }
}

absl::StatusOr<bool> TarMembers::NextEntry() {
  struct archive* const archive = archive_.get();
  const int64_t expected =
      next_offset_ >= 0 ? next_offset_ : archive_filter_bytes(archive, 0);
  stream_->AllowHeaders();
  const int result = archive_read_next_header(archive, &entry_);
  DATASETD_RETURN_IF_ERROR(stream_->status());
  // libarchive does not know its position after a fatal error.
  const int64_t found = result == ARCHIVE_FATAL
                            ? expected
                            : archive_read_header_position(archive);
  if (next_offset_ >= 0 && found != next_offset_) {
    return Invalid("a sparse member, which is not read");
  }
  header_offset_ = found;
  next_offset_ = -1;
  if (result == ARCHIVE_OK) return true;
  if (result == ARCHIVE_EOF) return false;
  // A name that is not ASCII, in a pax header. It is kept as it is.
  if (result == ARCHIVE_WARN && archive_errno(archive) == EILSEQ) return true;
  const char* const text = archive_error_string(archive);
  return Damaged("the archive is damaged or cut off",
                 text == nullptr ? "" : ": ", text == nullptr ? "" : text);
}

absl::StatusOr<bool> TarMembers::Take(TarMember* member) {
  const char* const name = archive_entry_pathname(entry_);
  member->name = name == nullptr ? "" : name;
  if (LeadsOut(member->name)) {
    return Invalid("the name '", absl::Utf8SafeCHexEscape(member->name),
                   "' is absolute, or leads out with ..");
  }
  const auto type = archive_entry_filetype(entry_);
  if (type == AE_IFDIR || type == AE_IFLNK ||
      archive_entry_hardlink(entry_) != nullptr) {
    return false;
  }
  if (archive_entry_sparse_count(entry_) > 0) {
    return Invalid("a sparse member, which is not read");
  }
  // libarchive has consumed the headers, of which the member's own is the last,
  // and takes kinds that it does not know for regular files.
  member->offset = archive_filter_bytes(archive_.get(), 0);
  const int kind = stream_->ByteAt(member->offset - kBlockBytes + kKindOffset);
  if (type != AE_IFREG || (kind != '0' && kind != '\0' && kind != '7')) {
    const char text = static_cast<char>(kind);
    return Invalid("a member of kind '",
                   absl::CHexEscape(absl::string_view(&text, 1)),
                   "', expected files, directories and links");
  }
  member->size_bytes = archive_entry_size(entry_);
  const int64_t left =
      std::max<int64_t>(stream_->info().size_bytes - member->offset, 0);
  // Unsigned, so that no size overflows.
  const uint64_t size = static_cast<uint64_t>(member->size_bytes);
  const uint64_t stored = (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (member->size_bytes < 0 || stored > static_cast<uint64_t>(left)) {
    return Damaged("a member of ", member->size_bytes, " bytes, found ", left);
  }
  next_offset_ = member->offset + static_cast<int64_t>(stored);
  return true;
}

// libarchive ends at the first block of zeros, and at the end of the file.
absl::Status TarMembers::CheckEnd() {
  const int64_t end = archive_filter_bytes(archive_.get(), 0);
  if (end - header_offset_ < 2 * kBlockBytes ||
      stream_->info().size_bytes % kBlockBytes != 0) {
    return Damaged(
        "the archive ends without its two blocks of zeros, or in the middle of "
        "a block; it is cut off");
  }
  DATASETD_ASSIGN_OR_RETURN(const bool is_zero, stream_->IsZeroFrom(end));
  if (is_zero) return absl::OkStatus();
  return Damaged("something follows the end of the archive");
}

}  // namespace datasetd
