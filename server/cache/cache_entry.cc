#include "server/cache/cache_entry.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "dsdcache";
// 1 had XXH3 in the place of BLAKE3, 2 no stored_by_uid.
constexpr uint32_t kVersion = 3;
constexpr size_t kPrefixBytes = 32;
constexpr int64_t kAlignment = 4096;
constexpr size_t kMaxNameBytes = 64 << 10;
constexpr size_t kMaxNoteBytes = 8 << 20;
constexpr size_t kMaxRank = 8;
constexpr uint8_t kFlagImage = 1;
constexpr uint8_t kFlagMask = 2;    // set together with kFlagImage
constexpr uint8_t kFlagPacked = 4;  // set together with kFlagImage
// Numbers stored for a packed field: both extents, pixels, bytes.
constexpr size_t kNumPackedNumbers = 6;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("cache entry: ", what));
}

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(absl::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    data_.append(text.data(), text.size());
  }
  std::string Take() { return std::move(data_); }

 private:
  std::string data_;
};

// Returns zeros after an error.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> data) : data_(data) {}

  template <typename T>
  T Number() {
    T value{};
    if (!Has(sizeof(value))) return value;
    std::memcpy(&value, data_.data(), sizeof(value));
    data_.remove_prefix(sizeof(value));
    return value;
  }
  std::string Text(size_t max_bytes = kMaxNameBytes) {
    const size_t size = Number<uint32_t>();
    if (size > max_bytes || !Has(size)) {
      has_failed_ = true;
      return "";
    }
    std::string text(reinterpret_cast<const char*>(data_.data()), size);
    data_.remove_prefix(size);
    return text;
  }
  // Reads a count of items that take at least `least_bytes` each.
  size_t Count(size_t least_bytes) {
    const size_t count = Number<uint32_t>();
    if (count > data_.size() / least_bytes) has_failed_ = true;
    return has_failed_ ? 0 : count;
  }
  bool has_failed() const { return has_failed_; }
  bool is_at_end() const { return data_.empty(); }

 private:
  bool Has(size_t size) {
    if (size > data_.size()) has_failed_ = true;
    return !has_failed_;
  }

  absl::Span<const uint8_t> data_;
  bool has_failed_ = false;
};

bool RoundUp(int64_t value, int64_t* rounded) {
  return !__builtin_add_overflow(value, kAlignment - 1, rounded) &&
         (*rounded = *rounded / kAlignment * kAlignment, true);
}

bool IsPackedRight(const FieldSpec& field, int64_t num_samples) {
  return field.shape.size() == 3 && field.shape[1] == kAnyExtent &&
         field.shape[2] > 0 && IsRaggedSize(field, field.smallest) &&
         IsRaggedSize(field, field.largest) && field.num_pixels > 0 &&
         field.packed_bytes > 0 && field.packed_bytes <= kMaxFileBytes &&
         field.packed_bytes % kRaggedAlignmentBytes == 0 &&
         num_samples <=
             kMaxFileBytes / static_cast<int64_t>(sizeof(RaggedSample));
}

// Computes the size of a field; false if it is zero or too large.
bool FieldBytes(const FieldSpec& field, int64_t num_samples, int64_t* bytes) {
  if (field.is_packed()) {
    *bytes = field.packed_bytes;
    return IsPackedRight(field, num_samples);
  }
  *bytes = DtypeSizeBytes(field.dtype);
  for (const int64_t extent : field.shape) {
    if (extent <= 0 || __builtin_mul_overflow(*bytes, extent, bytes)) {
      return false;
    }
  }
  return *bytes > 0 && !__builtin_mul_overflow(*bytes, num_samples, bytes) &&
         *bytes <= kMaxFileBytes;
}

int64_t HeaderBytes(const CacheHeader& header, int64_t num_blocks) {
  constexpr int64_t kTextBytes = sizeof(uint32_t);
  int64_t bytes = kPrefixBytes + 2 * (kTextBytes + kDigestHexLength) +
                  sizeof(uint8_t) + 2 * sizeof(uint32_t) + sizeof(int64_t) +
                  3 * sizeof(uint32_t);
  for (const FieldSpec& field : header.fields) {
    bytes += kTextBytes + field.name.size() + 2 * sizeof(uint8_t) +
             sizeof(uint32_t) + field.shape.size() * sizeof(int64_t);
    if (field.is_packed()) bytes += kNumPackedNumbers * sizeof(int64_t);
  }
  for (const std::string& name : header.class_names) {
    bytes += kTextBytes + name.size();
  }
  for (const auto& [key, value] : header.notes) {
    bytes += 2 * kTextBytes + key.size() + value.size();
  }
  return bytes + num_blocks * static_cast<int64_t>(sizeof(uint64_t));
}

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("cannot be cached: ", what));
}

absl::Status CheckTexts(const CacheHeader& header) {
  if (!IsCacheId(header.spec_id) || !IsCacheId(header.content_hash)) {
    return Invalid("spec id and content hash must have 64 hex digits");
  }
  for (const FieldSpec& field : header.fields) {
    if (field.name.size() > kMaxNameBytes || field.shape.size() > kMaxRank) {
      return Invalid("a field's name or rank is too large");
    }
  }
  for (const std::string& name : header.class_names) {
    if (name.size() > kMaxNameBytes) return Invalid("a class name is too long");
  }
  for (const auto& [key, value] : header.notes) {
    if (key.size() > kMaxNameBytes || value.size() > kMaxNoteBytes) {
      return Invalid("a note is too long");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsCacheId(const std::string& id) {
  return id.size() == kDigestHexLength &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

uint64_t CacheChecksum(absl::Span<const uint8_t> data) {
  return XXH3_64bits(data.data(), data.size());
}

absl::StatusOr<CacheLayout> LayOutCacheEntry(const CacheHeader& header) {
  DATASETD_RETURN_IF_ERROR(CheckTexts(header));
  if (header.num_samples <= 0 || header.fields.empty()) {
    return Invalid("it has no samples");
  }
  if (header.fields.size() > static_cast<size_t>(kMaxDatasetFields)) {
    return Invalid(
        absl::StrCat("it has more than ", kMaxDatasetFields, " fields"));
  }
  CacheLayout layout;
  int64_t num_blocks = 0;
  for (size_t f = 0; f < header.fields.size(); ++f) {
    CacheLayout::Place& place = layout.places.emplace_back();
    place.field = f;
    if (!FieldBytes(header.fields[f], header.num_samples, &place.size_bytes)) {
      return Invalid(absl::StrCat("field '", header.fields[f].name,
                                  "' has no samples, or too many"));
    }
  }
  for (size_t f = 0; f < header.fields.size(); ++f) {
    if (!header.fields[f].is_packed()) continue;
    CacheLayout::Place& place = layout.places.emplace_back();
    place.field = f;
    place.is_index = true;
    place.size_bytes =
        header.num_samples * static_cast<int64_t>(sizeof(RaggedSample));
  }
  for (CacheLayout::Place& place : layout.places) {
    place.num_blocks =
        (place.size_bytes + kCacheBlockBytes - 1) / kCacheBlockBytes;
    num_blocks += place.num_blocks;
  }
  layout.header_bytes = HeaderBytes(header, num_blocks);
  if (layout.header_bytes > kMaxCacheHeaderBytes) {
    return Invalid("its header is too large");
  }
  layout.file_bytes = layout.header_bytes;
  for (CacheLayout::Place& place : layout.places) {
    if (!RoundUp(layout.file_bytes, &place.offset_bytes) ||
        __builtin_add_overflow(place.offset_bytes, place.size_bytes,
                               &layout.file_bytes) ||
        layout.file_bytes > kMaxFileBytes) {
      return Invalid("it is too large");
    }
  }
  return layout;
}

std::string EncodeCacheHeader(const CacheHeader& header) {
  Writer body;
  body.Text(header.spec_id);
  body.Text(header.content_hash);
  body.Number(static_cast<uint8_t>(header.owner_uid.has_value()));
  body.Number(header.owner_uid.value_or(0));
  body.Number(header.stored_by_uid);
  body.Number(header.num_samples);
  body.Number(static_cast<uint32_t>(header.fields.size()));
  for (const FieldSpec& field : header.fields) {
    body.Text(field.name);
    body.Number(static_cast<uint8_t>(field.dtype));
    body.Number(static_cast<uint8_t>((field.is_image ? kFlagImage : 0) |
                                     (field.is_mask ? kFlagMask : 0) |
                                     (field.is_packed() ? kFlagPacked : 0)));
    body.Number(static_cast<uint32_t>(field.shape.size()));
    for (const int64_t extent : field.shape) body.Number(extent);
    if (!field.is_packed()) continue;
    body.Number(field.smallest.height);
    body.Number(field.smallest.width);
    body.Number(field.largest.height);
    body.Number(field.largest.width);
    body.Number(field.num_pixels);
    body.Number(field.packed_bytes);
  }
  body.Number(static_cast<uint32_t>(header.class_names.size()));
  for (const std::string& name : header.class_names) body.Text(name);
  body.Number(static_cast<uint32_t>(header.notes.size()));
  for (const auto& [key, value] : header.notes) {
    body.Text(key);
    body.Text(value);
  }
  for (const std::vector<uint64_t>& blocks : header.checksums) {
    for (const uint64_t checksum : blocks) body.Number(checksum);
  }
  const std::string text = body.Take();
  Writer all;
  for (const char c : kMagic) all.Number(c);
  all.Number(kVersion);
  all.Number(uint32_t{0});
  all.Number(static_cast<uint64_t>(kPrefixBytes + text.size()));
  all.Number(uint64_t{XXH3_64bits(text.data(), text.size())});
  return all.Take() + text;
}

absl::StatusOr<CacheHeader> DecodeCacheHeader(absl::Span<const uint8_t> data) {
  Reader prefix(data);
  if (data.size() < kPrefixBytes ||
      std::memcmp(data.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged("it does not begin as one");
  }
  prefix.Number<uint64_t>();
  const uint32_t version = prefix.Number<uint32_t>();
  if (version > 0 && version < kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cache entry: its version is ", version, ", this daemon's ", kVersion));
  }
  if (version != kVersion || prefix.Number<uint32_t>() != 0) {
    return Damaged(
        absl::StrCat("its version is ", version, ", this daemon's ", kVersion));
  }
  const uint64_t header_bytes = prefix.Number<uint64_t>();
  const uint64_t checksum = prefix.Number<uint64_t>();
  if (header_bytes < kPrefixBytes || header_bytes > data.size()) {
    return Damaged("its header ends early");
  }
  const auto text = data.subspan(kPrefixBytes, header_bytes - kPrefixBytes);
  if (XXH3_64bits(text.data(), text.size()) != checksum) {
    return Damaged("the checksum of its header is wrong");
  }

  Reader body(text);
  CacheHeader header;
  header.spec_id = body.Text();
  header.content_hash = body.Text();
  const uint8_t has_owner = body.Number<uint8_t>();
  const uint32_t owner_uid = body.Number<uint32_t>();
  if (has_owner > 1 || (has_owner == 0 && owner_uid != 0)) {
    return Damaged("its owner makes no sense");
  }
  if (has_owner == 1) header.owner_uid = owner_uid;
  header.stored_by_uid = body.Number<uint32_t>();
  header.num_samples = body.Number<int64_t>();
  header.fields.resize(body.Count(2 * sizeof(uint32_t) + 2));
  for (FieldSpec& field : header.fields) {
    field.name = body.Text();
    field.dtype = static_cast<Dtype>(body.Number<uint8_t>());
    const uint8_t flags = body.Number<uint8_t>();
    field.is_image = (flags & kFlagImage) != 0;
    field.is_mask = (flags & kFlagMask) != 0;
    field.shape.resize(body.Count(sizeof(int64_t)));
    for (int64_t& extent : field.shape) extent = body.Number<int64_t>();
    const bool is_packed = (flags & kFlagPacked) != 0;
    if (flags > (kFlagImage | kFlagMask | kFlagPacked) ||
        (flags != 0 && !field.is_image) || is_packed != field.is_packed()) {
      return Damaged("a field is of an unknown kind");
    }
    if (!is_packed) continue;
    field.smallest.height = body.Number<int64_t>();
    field.smallest.width = body.Number<int64_t>();
    field.largest.height = body.Number<int64_t>();
    field.largest.width = body.Number<int64_t>();
    field.num_pixels = body.Number<int64_t>();
    field.packed_bytes = body.Number<int64_t>();
  }
  header.class_names.resize(body.Count(sizeof(uint32_t)));
  for (std::string& name : header.class_names) name = body.Text();
  const size_t num_notes = body.Count(2 * sizeof(uint32_t));
  for (size_t i = 0; i < num_notes; ++i) {
    std::string key = body.Text();
    header.notes[std::move(key)] = body.Text(kMaxNoteBytes);
  }
  if (body.has_failed()) return Damaged("its header makes no sense");
  const auto layout = LayOutCacheEntry(header);
  if (!layout.ok()) return Damaged(layout.status().message());
  if (layout->header_bytes != static_cast<int64_t>(header_bytes)) {
    return Damaged("the size of its header is wrong");
  }
  for (const CacheLayout::Place& place : layout->places) {
    std::vector<uint64_t>& blocks = header.checksums.emplace_back();
    blocks.resize(static_cast<size_t>(place.num_blocks));
    for (uint64_t& block : blocks) block = body.Number<uint64_t>();
  }
  if (body.has_failed() || !body.is_at_end()) {
    return Damaged("the size of its header is wrong");
  }
  return header;
}

absl::StatusOr<CacheHeader> ReadCacheHeader(const RandomAccessFile& file) {
  const int64_t file_bytes = file.info().size_bytes;
  std::vector<uint8_t> data(kPrefixBytes);
  DATASETD_RETURN_IF_ERROR(ReadExactly(file, 0, absl::MakeSpan(data)));
  uint64_t header_bytes;
  std::memcpy(&header_bytes, data.data() + 16, sizeof(header_bytes));
  const uint64_t most =
      static_cast<uint64_t>(std::min(file_bytes, kMaxCacheHeaderBytes));
  if (header_bytes > most) {
    return Damaged(absl::StrCat(file.info().path, ": its header ends early"));
  }
  data.resize(std::max<size_t>(header_bytes, kPrefixBytes));
  DATASETD_RETURN_IF_ERROR(ReadExactly(file, 0, absl::MakeSpan(data)));
  DATASETD_ASSIGN_OR_RETURN(CacheHeader header, DecodeCacheHeader(data));
  DATASETD_ASSIGN_OR_RETURN(const CacheLayout layout, LayOutCacheEntry(header));
  if (layout.file_bytes != file_bytes) {
    return Damaged(absl::StrCat(file.info().path, ": has ", file_bytes,
                                " bytes, and should have ", layout.file_bytes));
  }
  return header;
}

}  // namespace datasetd
