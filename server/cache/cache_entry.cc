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
#include "datasetd/v1/cache.pb.h"
#include "server/dataset/field_message.h"
#include "server/dataset/ragged_index.h"

namespace datasetd {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "dsdcache";
// 1 had XXH3 in the place of BLAKE3, 2 no stored_by_uid, 3 a body that was no
// message.
constexpr uint32_t kVersion = 4;
constexpr int64_t kAlignment = 4096;
constexpr size_t kMaxNameBytes = 64 << 10;
constexpr size_t kMaxRank = 8;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;

struct Prefix {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t header_bytes;
  uint64_t checksum;
};
static_assert(sizeof(Prefix) == 32);

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("cache entry: ", what));
}

bool RoundUp(int64_t value, int64_t* rounded) {
  return !__builtin_add_overflow(value, kAlignment - 1, rounded) &&
         (*rounded = *rounded / kAlignment * kAlignment, true);
}

bool IsPackedRight(const FieldSpec& field, int64_t num_samples) {
  const bool is_shaped =
      field.is_image ? field.shape.size() == 3 &&
                           field.shape[1] == kAnyExtent && field.shape[2] > 0
                     : field.shape.size() == 1 ||
                           (field.shape.size() == 2 && field.shape[1] > 0);
  return is_shaped && IsRaggedSize(field, field.smallest) &&
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

// Without checksums.
v1::CacheHeader ToMessage(const CacheHeader& header) {
  v1::CacheHeader message;
  message.set_spec_id(header.spec_id);
  message.set_content_hash(header.content_hash);
  if (header.owner_uid.has_value()) message.set_owner_uid(*header.owner_uid);
  message.set_stored_by_uid(header.stored_by_uid);
  message.set_num_samples(header.num_samples);
  for (const FieldSpec& field : header.fields) {
    FieldToMessage(field, message.add_fields());
    if (field.is_packed()) message.add_packed_bytes(field.packed_bytes);
  }
  message.mutable_class_names()->Assign(header.class_names.begin(),
                                        header.class_names.end());
  message.set_num_bad_samples(header.bad_samples.num_samples);
  message.set_num_transient(header.bad_samples.num_transient);
  for (const BadSample& sample : header.bad_samples.listed) {
    v1::CacheHeader::BadSample* const to = message.add_bad_samples();
    to->set_index(sample.index);
    to->set_path(sample.path);
    to->set_offset(sample.offset);
    to->set_reason(sample.reason);
  }
  NotesToMessage(header.notes, message.mutable_notes());
  return message;
}

// Without checksums. DATA_LOSS if a field cannot be one, or if there are more
// bad samples than a report has.
absl::StatusOr<CacheHeader> FromMessage(const v1::CacheHeader& message) {
  CacheHeader header;
  header.spec_id = message.spec_id();
  header.content_hash = message.content_hash();
  if (message.has_owner_uid()) header.owner_uid = message.owner_uid();
  header.stored_by_uid = message.stored_by_uid();
  header.num_samples = message.num_samples();
  int num_packed = 0;
  for (const v1::Field& from : message.fields()) {
    if (!v1::Dtype_IsValid(from.dtype()) ||
        (from.is_mask() && !from.is_image())) {
      return Damaged("a field is of an unknown kind");
    }
    FieldSpec& field = header.fields.emplace_back(FieldFromMessage(from));
    if (!field.is_packed()) continue;
    if (num_packed == message.packed_bytes_size()) {
      return Damaged("the size of a field is missing");
    }
    field.packed_bytes = message.packed_bytes(num_packed++);
  }
  header.class_names.assign(message.class_names().begin(),
                            message.class_names().end());
  BadSampleReport& report = header.bad_samples;
  report.num_samples = message.num_bad_samples();
  report.num_transient = message.num_transient();
  for (const v1::CacheHeader::BadSample& from : message.bad_samples()) {
    report.num_text_bytes += from.path().size() + from.reason().size();
    report.listed.push_back({.index = from.index(),
                             .path = from.path(),
                             .offset = from.offset(),
                             .reason = from.reason()});
  }
  if (report.listed.size() > kMaxListedBadSamples ||
      report.num_text_bytes > kMaxReportBytes ||
      report.num_samples < static_cast<int64_t>(report.listed.size()) ||
      report.num_transient < 0 || report.num_transient > report.num_samples) {
    return Damaged("its report of bad samples makes no sense");
  }
  header.notes = NotesFromMessage(message.notes());
  const absl::Status notes = CheckNotes(header.notes);
  if (!notes.ok()) return Damaged(notes.message());
  return header;
}

// The size of the header with so many checksums in each place.
int64_t HeaderBytes(const CacheHeader& header,
                    const std::vector<CacheLayout::Place>& places) {
  v1::CacheHeader message = ToMessage(header);
  for (const CacheLayout::Place& place : places) {
    message.add_blocks()->mutable_checksums()->Resize(
        static_cast<int>(place.num_blocks), 0);
  }
  return static_cast<int64_t>(sizeof(Prefix) + message.ByteSizeLong());
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
  if (num_blocks <= kMaxCacheHeaderBytes / int64_t{sizeof(uint64_t)}) {
    layout.header_bytes = HeaderBytes(header, layout.places);
  }
  if (layout.header_bytes == 0 || layout.header_bytes > kMaxCacheHeaderBytes) {
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
  v1::CacheHeader message = ToMessage(header);
  for (const std::vector<uint64_t>& checksums : header.checksums) {
    message.add_blocks()->mutable_checksums()->Assign(checksums.begin(),
                                                      checksums.end());
  }
  const std::string body = message.SerializeAsString();
  Prefix prefix = {.version = kVersion,
                   .header_bytes = sizeof(Prefix) + body.size(),
                   .checksum = XXH3_64bits(body.data(), body.size())};
  std::memcpy(prefix.magic, kMagic.data(), kMagic.size());
  return absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&prefix), sizeof(prefix)),
      body);
}

absl::StatusOr<CacheHeader> DecodeCacheHeader(absl::Span<const uint8_t> data) {
  Prefix prefix;
  if (data.size() < sizeof(prefix) ||
      std::memcmp(data.data(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged("it does not begin as one");
  }
  std::memcpy(&prefix, data.data(), sizeof(prefix));
  if (prefix.version > 0 && prefix.version < kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("cache entry: its version is ", prefix.version,
                     ", this daemon's ", kVersion));
  }
  if (prefix.version != kVersion || prefix.reserved != 0) {
    return Damaged(absl::StrCat("its version is ", prefix.version,
                                ", this daemon's ", kVersion));
  }
  if (prefix.header_bytes < sizeof(prefix) ||
      prefix.header_bytes > data.size()) {
    return Damaged("its header ends early");
  }
  const auto body =
      data.subspan(sizeof(prefix), prefix.header_bytes - sizeof(prefix));
  if (CacheChecksum(body) != prefix.checksum) {
    return Damaged("the checksum of its header is wrong");
  }
  v1::CacheHeader message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return Damaged("its header makes no sense");
  }
  DATASETD_ASSIGN_OR_RETURN(CacheHeader header, FromMessage(message));
  const auto layout = LayOutCacheEntry(header);
  if (!layout.ok()) return Damaged(layout.status().message());
  // Also if the message has unknown fields.
  if (layout->header_bytes != static_cast<int64_t>(prefix.header_bytes) ||
      layout->places.size() != static_cast<size_t>(message.blocks_size())) {
    return Damaged("the size of its header is wrong");
  }
  for (int i = 0; i < message.blocks_size(); ++i) {
    const auto& checksums = message.blocks(i).checksums();
    if (checksums.size() != layout->places[static_cast<size_t>(i)].num_blocks) {
      return Damaged("the number of its checksums is wrong");
    }
    header.checksums.emplace_back(checksums.begin(), checksums.end());
  }
  return header;
}

absl::StatusOr<CacheHeader> ReadCacheHeader(const RandomAccessFile& file) {
  const int64_t file_bytes = file.info().size_bytes;
  std::vector<uint8_t> data(sizeof(Prefix));
  DATASETD_RETURN_IF_ERROR(ReadExactly(file, 0, absl::MakeSpan(data)));
  Prefix prefix;
  std::memcpy(&prefix, data.data(), sizeof(prefix));
  const uint64_t most =
      static_cast<uint64_t>(std::min(file_bytes, kMaxCacheHeaderBytes));
  if (prefix.header_bytes > most) {
    return Damaged(absl::StrCat(file.info().path, ": its header ends early"));
  }
  data.resize(std::max<size_t>(prefix.header_bytes, sizeof(prefix)));
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
