#include "server/readers/arrays/zip_members.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kMaxMembers = 4096;
constexpr size_t kMaxNameBytes = 1024;
constexpr int64_t kEndRecordBytes = 22;
// Deflate's maximum: 258 bytes for two bits, without the block's header.
constexpr int64_t kMaxExpansion = 1032;
constexpr int kEncryptedFlag = 1;

// minizip's view of a file.
struct Cursor {
  const RandomAccessFile* file = nullptr;
  int64_t offset = 0;
  absl::Status error;
};

Cursor* AsCursor(voidpf opaque) { return static_cast<Cursor*>(opaque); }

voidpf Open(voidpf opaque, const void*, int) { return opaque; }

uLong ReadBytes(voidpf opaque, voidpf, void* buffer, uLong size) {
  Cursor* const cursor = AsCursor(opaque);
  auto count = cursor->file->ReadAt(
      cursor->offset, absl::MakeSpan(static_cast<uint8_t*>(buffer), size));
  if (!count.ok()) {
    cursor->error = count.status();
    return 0;
  }
  cursor->offset += *count;
  return static_cast<uLong>(*count);
}

uLong WriteBytes(voidpf, voidpf, const void*, uLong) { return 0; }

ZPOS64_T Tell(voidpf opaque, voidpf) {
  return static_cast<ZPOS64_T>(AsCursor(opaque)->offset);
}

long Seek(voidpf opaque, voidpf, ZPOS64_T offset, int origin) {
  Cursor* const cursor = AsCursor(opaque);
  const int64_t size = cursor->file->info().size_bytes;
  int64_t base = 0;
  if (origin == ZLIB_FILEFUNC_SEEK_CUR) base = cursor->offset;
  if (origin == ZLIB_FILEFUNC_SEEK_END) base = size;
  if (offset > static_cast<ZPOS64_T>(size - base)) return -1;
  cursor->offset = base + static_cast<int64_t>(offset);
  return 0;
}

int Close(voidpf, voidpf) { return 0; }

int HasError(voidpf opaque, voidpf) {
  return AsCursor(opaque)->error.ok() ? 0 : 1;
}

// An open archive. minizip keeps one member open at a time.
class Archive {
 public:
  ~Archive() {
    if (zip_ != nullptr) unzClose(zip_);
  }

  // REQUIRES: called once, first; `file` outlives the archive.
  absl::Status Open(const RandomAccessFile& file) {
    cursor_.file = &file;
    DATASETD_RETURN_IF_ERROR(CheckEnd());
    zlib_filefunc64_def functions = {datasetd::Open, ReadBytes, WriteBytes,
                                     Tell,           Seek,      Close,
                                     HasError,       &cursor_};
    zip_ = unzOpen2_64(path().c_str(), &functions);
    if (zip_ != nullptr) return absl::OkStatus();
    return Damaged("no central directory where the last record says");
  }

  absl::Status GoTo(size_t index) {
    DATASETD_RETURN_IF_ERROR(
        Check(unzGoToFirstFile(zip_), "central directory"));
    for (size_t i = 0; i < index; ++i) {
      DATASETD_RETURN_IF_ERROR(
          Check(unzGoToNextFile(zip_), "central directory"));
    }
    return absl::OkStatus();
  }

  absl::Status Check(int code, absl::string_view what) const {
    if (code == UNZ_OK) return absl::OkStatus();
    return Damaged(absl::StrCat(what, code == UNZ_CRCERROR
                                          ? ": wrong checksum"
                                          : absl::StrCat(" (", code, ")")));
  }
  // The disk's error if there was one.
  absl::Status Damaged(absl::string_view what) const {
    if (!cursor_.error.ok()) return cursor_.error;
    return absl::DataLossError(
        absl::StrCat(path(), ": damaged zip archive: ", what));
  }

  const std::string& path() const { return cursor_.file->info().path; }
  unzFile zip() { return zip_; }

 private:
  // minizip searches for the last record in the last 64 KiB; archives with data
  // after it are not supported.
  absl::Status CheckEnd() const {
    const int64_t size = cursor_.file->info().size_bytes;
    uint8_t begin[4] = {};
    DATASETD_RETURN_IF_ERROR(
        cursor_.file->ReadAt(0, absl::MakeSpan(begin)).status());
    if (memcmp(begin, "PK", 2) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path(), ": offset 0: expected a zip archive, found '",
                       absl::CHexEscape(absl::string_view(
                           reinterpret_cast<const char*>(begin), 4)),
                       "'"));
    }
    uint8_t end[kEndRecordBytes] = {};
    if (size < kEndRecordBytes) return Damaged("ends early");
    DATASETD_RETURN_IF_ERROR(ReadExactly(*cursor_.file, size - kEndRecordBytes,
                                         absl::MakeSpan(end)));
    if (memcmp(end, "PK\5\6", 4) == 0 && end[20] == 0 && end[21] == 0) {
      return absl::OkStatus();
    }
    return Damaged(
        "its last record is not at the end: cut off, or followed by "
        "something else");
  }

  Cursor cursor_;
  unzFile zip_ = nullptr;
};

class MemberStream : public InputStream {
 public:
  explicit MemberStream(std::shared_ptr<const RandomAccessFile> file)
      : file_(std::move(file)) {}

  // REQUIRES: called once, first.
  absl::Status Open(size_t index) {
    DATASETD_RETURN_IF_ERROR(archive_.Open(*file_));
    DATASETD_RETURN_IF_ERROR(archive_.GoTo(index));
    unz_file_info64 info = {};
    DATASETD_RETURN_IF_ERROR(
        archive_.Check(unzGetCurrentFileInfo64(archive_.zip(), &info, nullptr,
                                               0, nullptr, 0, nullptr, 0),
                       "member"));
    size_bytes_ = static_cast<int64_t>(info.uncompressed_size);
    return archive_.Check(unzOpenCurrentFile(archive_.zip()),
                          "a member's header");
  }

  const FileInfo& info() const override { return file_->info(); }

  absl::Status Read(absl::Span<uint8_t> buffer) override {
    while (!buffer.empty()) {
      const unsigned wanted = static_cast<unsigned>(
          std::min<size_t>(buffer.size(), size_t{1} << 30));
      const int count =
          unzReadCurrentFile(archive_.zip(), buffer.data(), wanted);
      if (count <= 0) {
        return archive_.Damaged(
            absl::StrCat("a member ends or is damaged at "
                         "its offset ",
                         offset_, " (", count, ")"));
      }
      buffer.remove_prefix(static_cast<size_t>(count));
      offset_ += count;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTotalBytes(int64_t expected_bytes) const override {
    if (size_bytes_ == expected_bytes) return absl::OkStatus();
    return archive_.Damaged(absl::StrCat("a member of ", size_bytes_,
                                         " bytes, expected ", expected_bytes));
  }

  absl::Status ExpectEnd() override {
    DATASETD_RETURN_IF_ERROR(CheckTotalBytes(offset_));
    return archive_.Check(unzCloseCurrentFile(archive_.zip()), "a member");
  }

 private:
  const std::shared_ptr<const RandomAccessFile> file_;
  Archive archive_;
  int64_t size_bytes_ = 0;
  int64_t offset_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ZipMember>> ListZipMembers(
    const RandomAccessFile& file) {
  Archive archive;
  DATASETD_RETURN_IF_ERROR(archive.Open(file));
  std::vector<ZipMember> members;
  int64_t compressed_bytes = 0;
  for (int code = unzGoToFirstFile(archive.zip());
       code != UNZ_END_OF_LIST_OF_FILE; code = unzGoToNextFile(archive.zip())) {
    DATASETD_RETURN_IF_ERROR(archive.Check(code, "central directory"));
    unz_file_info64 info = {};
    char name[kMaxNameBytes] = {};
    DATASETD_RETURN_IF_ERROR(archive.Check(
        unzGetCurrentFileInfo64(archive.zip(), &info, name, sizeof(name),
                                nullptr, 0, nullptr, 0),
        "central directory"));
    if (members.size() == kMaxMembers || info.size_filename >= sizeof(name) ||
        (info.flag & kEncryptedFlag) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.info().path, ": more than ", kMaxMembers,
                       " members, a name of more than ", sizeof(name) - 1,
                       " bytes, or an encrypted member"));
    }
    // Overlapping members would multiply what the file can expand to.
    const auto compressed = static_cast<int64_t>(info.compressed_size);
    const auto size = static_cast<int64_t>(info.uncompressed_size);
    if (compressed < 0 || size < 0 ||
        compressed > file.info().size_bytes - compressed_bytes ||
        size / kMaxExpansion > compressed) {
      return archive.Damaged("members that are larger than the file can hold");
    }
    compressed_bytes += compressed;
    members.push_back(
        {.name = std::string(name, info.size_filename), .size_bytes = size});
  }
  return members;
}

absl::StatusOr<std::unique_ptr<InputStream>> OpenZipMember(
    std::shared_ptr<const RandomAccessFile> file, size_t index) {
  auto stream = std::make_unique<MemberStream>(std::move(file));
  DATASETD_RETURN_IF_ERROR(stream->Open(index));
  return stream;
}

}  // namespace datasetd
