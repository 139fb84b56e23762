// One dataset in the cache: a file that holds the resident samples of every
// field, and in front of them a header that says what they are.
//
//   prefix  magic "dsdcache", version, header size, xxh3 of the rest of it
//   body    CacheHeader
//   fields  each from a multiple of 4096, samples back to back, or packed
//   indices of the packed fields, so too: their RaggedSamples
//
// Numbers are little-endian. Every block of kCacheBlockBytes of a field (the
// last may be shorter) has its xxh3 in the header.

#ifndef DATASETD_SERVER_CACHE_CACHE_ENTRY_H_
#define DATASETD_SERVER_CACHE_CACHE_ENTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/field_spec.h"
#include "server/files/random_access_file.h"

namespace datasetd {

inline constexpr int64_t kCacheBlockBytes = 4 << 20;
inline constexpr int64_t kMaxCacheHeaderBytes = 64 << 20;

struct CacheHeader {
  std::string spec_id;       // 64 hexadecimal digits
  std::string content_hash;  // 64 hexadecimal digits
  // Of a pushed dataset: whose it is, and nobody else's.
  std::optional<uint32_t> owner_uid;
  // The user whose load stored it: whose part of the cache it takes.
  uint32_t stored_by_uid = 0;
  int64_t num_samples = 0;
  std::vector<FieldSpec> fields;
  std::vector<std::string> class_names;
  // What else there is to know of the dataset, by key; 8 MiB each at most.
  std::map<std::string, std::string> notes;
  // By place of the layout: one for each block.
  std::vector<std::vector<uint64_t>> checksums;

  bool operator==(const CacheHeader&) const = default;
};

// Where things lie in the file.
struct CacheLayout {
  int64_t header_bytes = 0;
  struct Place {
    size_t field = 0;
    bool is_index = false;
    int64_t offset_bytes = 0;
    int64_t size_bytes = 0;
    int64_t num_blocks = 0;
  };
  // Of each field its samples, then of each packed one its index.
  std::vector<Place> places;
  int64_t file_bytes = 0;
};

// Depends on all of the header but the values of checksums.
//   INVALID_ARGUMENT  it has no samples or no fields, a shape or name is none,
//                     or a file cannot be so large
absl::StatusOr<CacheLayout> LayOutCacheEntry(const CacheHeader& header);

// REQUIRES: LayOutCacheEntry succeeds and checksums has its numbers of blocks.
std::string EncodeCacheHeader(const CacheHeader& header);

// `data` begins with the header, and may be longer.
//   DATA_LOSS            it is damaged; says where
//   FAILED_PRECONDITION  it is of an earlier version
absl::StatusOr<CacheHeader> DecodeCacheHeader(absl::Span<const uint8_t> data);

// The header of an entry whose size is what the header says. Errors as
// DecodeCacheHeader.
absl::StatusOr<CacheHeader> ReadCacheHeader(const RandomAccessFile& file);

// 64 lowercase hexadecimal digits.
bool IsCacheId(const std::string& id);

uint64_t CacheChecksum(absl::Span<const uint8_t> data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHE_ENTRY_H_
