// The file format of a cached dataset: a header, then the resident samples of
// every field.
//
//   prefix  magic "dsdcache", version, header size, xxh3 of the rest of the
//           prefix
//   body    v1::CacheHeader
//   fields  samples, back to back or packed, each field aligned to 4096
//   indices of the packed fields (RaggedSamples), each aligned likewise
//
// The prefix's numbers are little-endian. The header has the xxh3 of every
// block of kCacheBlockBytes of a field; the last block may be shorter.

#ifndef DATASETD_SERVER_CACHE_CACHE_ENTRY_H_
#define DATASETD_SERVER_CACHE_CACHE_ENTRY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/load_notes.h"
#include "server/files/random_access_file.h"

namespace datasetd {

inline constexpr int64_t kCacheBlockBytes = 4 << 20;
inline constexpr int64_t kMaxCacheHeaderBytes = 64 << 20;

struct CacheHeader {
  std::string spec_id;       // 64 hexadecimal digits
  std::string content_hash;  // 64 hexadecimal digits
  // For a pushed dataset, the only user who may load it.
  std::optional<uint32_t> owner_uid;
  // The user whose load stored it: whose part of the cache it takes.
  uint32_t stored_by_uid = 0;
  int64_t num_samples = 0;
  std::vector<FieldSpec> fields;
  std::vector<std::string> class_names;
  BadSampleReport bad_samples;
  std::vector<LoadNote> notes;
  // By place of the layout, one per block.
  std::vector<std::vector<uint64_t>> checksums;

  bool operator==(const CacheHeader&) const = default;
};

// The layout of the file.
struct CacheLayout {
  int64_t header_bytes = 0;
  struct Place {
    size_t field = 0;
    bool is_index = false;
    int64_t offset_bytes = 0;
    int64_t size_bytes = 0;
    int64_t num_blocks = 0;
  };
  // For each field its samples, then for each packed field its index.
  std::vector<Place> places;
  int64_t file_bytes = 0;
};

// Depends on the whole header except the values of checksums.
//   INVALID_ARGUMENT  no samples or no fields, an invalid shape or name, or the
//                     file would be too large
absl::StatusOr<CacheLayout> LayOutCacheEntry(const CacheHeader& header);

// REQUIRES: LayOutCacheEntry succeeds and checksums has the layout's block
// counts.
std::string EncodeCacheHeader(const CacheHeader& header);

// `data` starts with the header and may be longer.
//   DATA_LOSS            damaged; says where
//   FAILED_PRECONDITION  an earlier format version
absl::StatusOr<CacheHeader> DecodeCacheHeader(absl::Span<const uint8_t> data);

// Reads the header of an entry and checks the file's size against it. Errors as
// DecodeCacheHeader.
absl::StatusOr<CacheHeader> ReadCacheHeader(const RandomAccessFile& file);

// True for 64 lowercase hexadecimal digits.
bool IsCacheId(const std::string& id);

uint64_t CacheChecksum(absl::Span<const uint8_t> data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHE_ENTRY_H_
