#include "server/readers/archives/tar_walker.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int64_t kBlockBytes = 512;
constexpr int64_t kMaxExtensionBytes = 64 << 10;
constexpr int64_t kZerosPerRead = 64 << 10;

// A header field up to its first NUL.
absl::string_view Text(const uint8_t* block, size_t offset, size_t size) {
  const char* const begin = reinterpret_cast<const char*>(block) + offset;
  return absl::string_view(begin, strnlen(begin, size));
}

// Octal surrounded by spaces or NULs, or GNU's big-endian with the top bit set;
// -1 for anything else.
int64_t Number(const uint8_t* block, size_t offset, size_t size) {
  const uint8_t* const field = block + offset;
  if ((field[0] & 0x80) != 0) {
    uint64_t value = field[0] & 0x3f;
    for (size_t i = 1; i < size; ++i) {
      if (value >> 54 != 0) return -1;
      value = value << 8 | field[i];
    }
    return (field[0] & 0x40) != 0 ? -1 : static_cast<int64_t>(value);
  }
  int64_t value = 0;
  size_t i = 0;
  while (i < size && field[i] == ' ') ++i;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; ++i) {
    value = value * 8 + (field[i] - '0');
  }
  for (; i < size; ++i) {
    if (field[i] != ' ' && field[i] != '\0') return -1;
  }
  return value;
}

bool IsChecksumRight(const uint8_t* block) {
  int64_t sum = 8 * ' ';
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    if (i < 148 || i >= 156) sum += block[i];
  }
  return sum == Number(block, 148, 8);
}

bool IsZero(absl::Span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

bool LeadsOut(absl::string_view name) {
  if (name.empty() || name[0] == '/') return true;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "..") return true;
  }
  return name.find('\0') != absl::string_view::npos;
}

}  // namespace

template <typename... Parts>
absl::Status TarWalker::Damaged(const Parts&... parts) const {
  return absl::DataLossError(
      absl::StrCat(file_->info().path, ": offset ", offset_, ": ", parts...));
}

absl::Status TarWalker::Invalid(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_->info().path, ": offset ", offset_, ": ", what));
}

absl::StatusOr<bool> TarWalker::Next(TarMember* member) {
  const int64_t size = file_->info().size_bytes;
  while (true) {
    if (size - offset_ < kBlockBytes) {
      return Damaged(
          "the archive ends without its two blocks of zeros; it is "
          "cut off");
    }
    uint8_t block[kBlockBytes];
    DATASETD_RETURN_IF_ERROR(
        ReadExactly(*file_, offset_, absl::MakeSpan(block)));
    if (IsZero(block)) {
      DATASETD_RETURN_IF_ERROR(ExpectZeros());
      return false;
    }
    if (memcmp(block + 257, "ustar", 5) != 0) {
      constexpr absl::string_view kWhat =
          "no header of a tar archive (ustar); of compressed ones gzip is read";
      return offset_ == 0 ? Invalid(kWhat) : Damaged(kWhat);
    }
    if (!IsChecksumRight(block)) {
      return Damaged("the header's checksum is wrong");
    }
    const char kind = static_cast<char>(block[156]);
    int64_t content_bytes = Number(block, 124, 12);
    const bool is_extension =
        kind == 'L' || kind == 'K' || kind == 'x' || kind == 'g';
    if (!is_extension && pax_size_bytes_ >= 0) content_bytes = pax_size_bytes_;
    const int64_t left = size - offset_ - kBlockBytes;
    if (content_bytes < 0 || content_bytes > left ||
        (content_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes > left) {
      return Damaged("a member of ", content_bytes, " bytes, found ", left);
    }
    const int64_t next =
        offset_ + kBlockBytes +
        (content_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    if (is_extension) {
      DATASETD_ASSIGN_OR_RETURN(const std::string content,
                                ReadExtension(content_bytes));
      if (kind == 'L') long_name_ = std::string(content.c_str());
      if (kind == 'x') DATASETD_RETURN_IF_ERROR(ParsePax(content));
      offset_ = next;
      continue;
    }
    member->name = long_name_;
    if (member->name.empty()) {
      const absl::string_view prefix = Text(block, 345, 155);
      const bool is_posix = memcmp(block + 257, "ustar\0", 6) == 0;
      member->name = absl::StrCat(is_posix ? prefix : "",
                                  is_posix && !prefix.empty() ? "/" : "",
                                  Text(block, 0, 100));
    }
    long_name_.clear();
    pax_size_bytes_ = -1;
    member->offset = offset_ + kBlockBytes;
    member->size_bytes = content_bytes;
    if (LeadsOut(member->name)) {
      return Invalid(absl::StrCat("the name '",
                                  absl::Utf8SafeCHexEscape(member->name),
                                  "' is absolute, or leads out with .."));
    }
    switch (kind) {
      case '0':
      case '\0':
      case '7':
        offset_ = next;
        return true;
      case '1':  // links
      case '2':
      case '5':  // directory
        offset_ = next;
        break;
      default:
        return Invalid(absl::StrCat(
            "a member of kind '", absl::CHexEscape(absl::string_view(&kind, 1)),
            "', expected files, directories and links"));
    }
  }
}

absl::Status TarWalker::ExpectZeros() {
  const int64_t size = file_->info().size_bytes;
  if (size - offset_ < 2 * kBlockBytes || size % kBlockBytes != 0) {
    return Damaged(
        "the archive ends without its two blocks of zeros, or in "
        "the middle of a block; it is cut off");
  }
  std::vector<uint8_t> zeros;
  for (int64_t at = offset_; at < size; at += kZerosPerRead) {
    zeros.resize(static_cast<size_t>(std::min(kZerosPerRead, size - at)));
    DATASETD_RETURN_IF_ERROR(ReadExactly(*file_, at, absl::MakeSpan(zeros)));
    if (!IsZero(zeros)) {
      return Damaged("something follows the end of the archive");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TarWalker::ReadExtension(int64_t size_bytes) {
  if (size_bytes > kMaxExtensionBytes) {
    return Damaged("an extended header of ", size_bytes,
                   " bytes, expected at most ", kMaxExtensionBytes);
  }
  std::string content(static_cast<size_t>(size_bytes), '\0');
  DATASETD_RETURN_IF_ERROR(
      ReadExactly(*file_, offset_ + kBlockBytes,
                  absl::MakeSpan(reinterpret_cast<uint8_t*>(content.data()),
                                 content.size())));
  return content;
}

// Parses records "LENGTH KEY=VALUE\n", where LENGTH is the whole record's.
absl::Status TarWalker::ParsePax(absl::string_view records) {
  while (!records.empty()) {
    const size_t space = records.find(' ');
    size_t length = 0;
    if (space == absl::string_view::npos || space > 8 ||
        !absl::SimpleAtoi(records.substr(0, space), &length) ||
        length < space + 2 || length > records.size() ||
        records[length - 1] != '\n') {
      return Damaged("a pax header that is not made of records");
    }
    const absl::string_view record =
        records.substr(space + 1, length - space - 2);
    records.remove_prefix(length);
    const size_t equals = record.find('=');
    const absl::string_view key = record.substr(0, equals);
    const absl::string_view value =
        equals == absl::string_view::npos ? "" : record.substr(equals + 1);
    if (key == "path") long_name_ = std::string(value);
    if (key == "size" &&
        (!absl::SimpleAtoi(value, &pax_size_bytes_) || pax_size_bytes_ < 0)) {
      return Damaged("a pax header whose size is no number");
    }
    if (absl::string_view(key).substr(0, 10) == "GNU.sparse") {
      return Invalid("a sparse member, which is not read");
    }
  }
  return absl::OkStatus();
}

}  // namespace datasetd
