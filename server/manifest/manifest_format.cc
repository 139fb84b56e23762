#include "server/manifest/manifest_format.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cache/cache_entry.h"
#include "server/dataset/dataset_limits.h"

namespace datasetd {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'d', 's', 'd', 'm', 'a', 'n', 'i', 'f'};
constexpr uint32_t kVersion1 = 1;
constexpr uint32_t kVersion2 = 2;

struct Prefix {
  char magic[8];
  uint32_t version;
  uint32_t count;  // of entries; in version 1 the size of the message
  uint64_t checksum;
};
static_assert(sizeof(Prefix) * 2 == kManifestBytes);

struct IndexEntry {
  uint64_t size_bytes;
  uint64_t checksum;
};
static_assert(sizeof(IndexEntry) * 2 == kManifestBytesOfEntry);
using Index = std::vector<IndexEntry>;

// True for this version's content hash, and for the previous version's (XXH3,
// 128 bits), whose pushed datasets are not found.
bool IsContentHash(const std::string& hash) {
  return IsCacheId(hash) || (hash.size() == 32 && IsCacheId(hash + hash));
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("manifest: ", what));
}

template <typename T>
absl::string_view AsText(const T& object) {
  return absl::string_view(reinterpret_cast<const char*>(&object),
                           sizeof(object));
}

// REQUIRES: the bytes are there.
template <typename T>
T ReadAt(absl::string_view data, size_t offset) {
  T object;
  std::memcpy(&object, data.data() + offset, sizeof(object));
  return object;
}

bool IsPrefix(const Prefix& prefix, uint32_t version) {
  return std::memcmp(prefix.magic, kMagic, sizeof(kMagic)) == 0 &&
         prefix.version == version;
}

// Returns the index at the beginning or the end of a file of version 2, if it
// is whole.
std::optional<Index> ReadIndex(absl::string_view data, bool is_at_end) {
  if (data.size() < sizeof(Prefix)) return std::nullopt;
  const auto prefix =
      ReadAt<Prefix>(data, is_at_end ? data.size() - sizeof(Prefix) : 0);
  const size_t room = (data.size() - sizeof(Prefix)) / sizeof(IndexEntry);
  if (!IsPrefix(prefix, kVersion2) || prefix.count > room) return std::nullopt;
  const size_t size_bytes = prefix.count * sizeof(IndexEntry);
  const size_t offset =
      is_at_end ? data.size() - sizeof(Prefix) - size_bytes : sizeof(Prefix);
  if (XXH3_64bits_withSeed(data.data() + offset, size_bytes, prefix.count) !=
      prefix.checksum) {
    return std::nullopt;
  }
  Index index(prefix.count);
  for (size_t i = 0; i < index.size(); ++i) {
    index[i] = ReadAt<IndexEntry>(data, offset + i * sizeof(IndexEntry));
    if (index[i].size_bytes > kMaxManifestBytes) return std::nullopt;
  }
  return index;
}

// Adds an entry, unless it is not one of a list with these names.
absl::Status AddEntry(v1::Manifest::Entry entry, int number,
                      std::set<std::string>* names, v1::Manifest* manifest) {
  if (!IsDatasetName(entry.spec().name()) ||
      names->count(entry.spec().name()) != 0) {
    return Damaged(absl::StrCat("entry ", number, " has no name of its own"));
  }
  if (!IsContentHash(entry.content_hash())) {
    return Damaged(absl::StrCat("entry ", number, " has no content hash"));
  }
  names->insert(entry.spec().name());
  *manifest->add_entries() = std::move(entry);
  return absl::OkStatus();
}

absl::StatusOr<DecodedManifest> DecodeVersion1(absl::string_view data) {
  const auto prefix = ReadAt<Prefix>(data, 0);
  const absl::string_view message = data.substr(sizeof(prefix));
  if (message.size() != prefix.count) {
    return Damaged(absl::StrCat("has ", message.size(), " bytes, and should ",
                                "have ", prefix.count));
  }
  if (XXH3_64bits(message.data(), message.size()) != prefix.checksum) {
    return Damaged("its checksum is wrong");
  }
  v1::Manifest whole;
  if (!whole.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return Damaged("makes no sense");
  }
  DecodedManifest decoded;
  std::set<std::string> names;
  for (int i = 0; i < whole.entries_size(); ++i) {
    decoded.damage.Update(AddEntry(std::move(*whole.mutable_entries(i)), i,
                                   &names, &decoded.manifest));
  }
  return decoded;
}

// Entries begin at `offset`.
DecodedManifest ReadEntries(absl::string_view data, const Index& index,
                            size_t offset) {
  DecodedManifest decoded;
  std::set<std::string> names;
  for (size_t i = 0; i < index.size(); ++i) {
    const absl::string_view bytes =
        data.substr(std::min(offset, data.size()), index[i].size_bytes);
    offset += index[i].size_bytes;
    v1::Manifest::Entry entry;
    if (bytes.size() != index[i].size_bytes ||
        XXH3_64bits(bytes.data(), bytes.size()) != index[i].checksum ||
        !entry.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      decoded.damage.Update(
          Damaged(absl::StrCat("entry ", i, " of ", index.size(),
                               " is damaged: that dataset is not loaded again, "
                               "the others are")));
      continue;
    }
    decoded.damage.Update(AddEntry(std::move(entry), static_cast<int>(i),
                                   &names, &decoded.manifest));
  }
  return decoded;
}

}  // namespace

std::string EncodeManifest(const v1::Manifest& manifest) {
  std::string index;
  std::string entries;
  for (const v1::Manifest::Entry& entry : manifest.entries()) {
    const std::string bytes = entry.SerializeAsString();
    const IndexEntry in_index = {
        .size_bytes = bytes.size(),
        .checksum = XXH3_64bits(bytes.data(), bytes.size())};
    absl::StrAppend(&index, AsText(in_index));
    entries += bytes;
  }
  Prefix prefix = {};
  std::memcpy(prefix.magic, kMagic, sizeof(kMagic));
  prefix.version = kVersion2;
  prefix.count = static_cast<uint32_t>(manifest.entries_size());
  prefix.checksum =
      XXH3_64bits_withSeed(index.data(), index.size(), prefix.count);
  return absl::StrCat(AsText(prefix), index, entries, index, AsText(prefix));
}

absl::StatusOr<DecodedManifest> DecodeManifest(absl::string_view data) {
  if (data.size() < sizeof(Prefix) || data.size() > kMaxManifestBytes) {
    return Damaged(absl::StrCat("has ", data.size(), " bytes"));
  }
  const auto prefix = ReadAt<Prefix>(data, 0);
  // Before the end is looked at: there, such a file has a user's texts.
  if (IsPrefix(prefix, kVersion1)) return DecodeVersion1(data);
  const std::optional<Index> first = ReadIndex(data, /*is_at_end=*/false);
  const std::optional<Index> last = ReadIndex(data, /*is_at_end=*/true);
  if (!first.has_value() && !last.has_value()) {
    if (std::memcmp(prefix.magic, kMagic, sizeof(kMagic)) != 0) {
      return Damaged("does not begin as one");
    }
    if (prefix.version != kVersion2) {
      return Damaged(absl::StrCat("its version is ", prefix.version,
                                  ", this daemon's ", kVersion2));
    }
    return Damaged("both of its indices are damaged");
  }
  const Index& index = first.has_value() ? *first : *last;
  size_t entry_bytes = 0;
  for (const IndexEntry& entry : index) entry_bytes += entry.size_bytes;
  const size_t index_bytes = sizeof(Prefix) + index.size() * sizeof(IndexEntry);
  size_t offset = index_bytes;
  if (!first.has_value()) {
    if (entry_bytes > data.size() - index_bytes) return Damaged("is cut off");
    offset = data.size() - index_bytes - entry_bytes;
  }
  DecodedManifest decoded = ReadEntries(data, index, offset);
  if (!first.has_value() || !last.has_value() ||
      data.size() != 2 * index_bytes + entry_bytes) {
    decoded.damage.Update(Damaged("one of its indices is damaged"));
  }
  return decoded;
}

}  // namespace datasetd
