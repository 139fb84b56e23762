#include "server/cache/cached_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "base/status_macros.h"

namespace datasetd {

CachedSource::CachedSource(std::unique_ptr<RandomAccessFile> file,
                           CacheHeader header, CacheLayout layout)
    : file_(std::move(file)),
      header_(std::move(header)),
      layout_(std::move(layout)) {
  info_.num_samples = header_.num_samples;
  info_.fields = header_.fields;
  info_.class_names = header_.class_names;
  info_.is_sequential = true;
  info_.bad_samples = header_.bad_samples;
  info_.notes = header_.notes;
  progress_.resize(layout_.places.size());
  for (Progress& progress : progress_) XXH3_64bits_reset(&progress.block);
}

CachedSource::~CachedSource() = default;

absl::Status CachedSource::Read(int64_t first, int64_t count,
                                absl::Span<const absl::Span<uint8_t>> fields) {
  Require(first == position_, "a cache entry is read in order");
  position_ += count;
  for (size_t f = 0; f < fields.size(); ++f) {
    DATASETD_RETURN_IF_ERROR(ReadNext(f, fields[f]));
  }
  return absl::OkStatus();
}

absl::StatusOr<RaggedIndex> CachedSource::ReadIndex(size_t field) {
  size_t place = header_.fields.size();
  while (layout_.places[place].field != field) ++place;
  std::vector<RaggedSample> samples(static_cast<size_t>(info_.num_samples));
  DATASETD_RETURN_IF_ERROR(
      ReadNext(place, absl::MakeSpan(reinterpret_cast<uint8_t*>(samples.data()),
                                     samples.size() * sizeof(RaggedSample))));
  const FieldSpec& spec = header_.fields[field];
  DATASETD_ASSIGN_OR_RETURN(RaggedIndex index,
                            RaggedIndex::Check(spec, samples));
  FieldSpec described = spec;
  index.Describe(&described);
  if (described != spec) {
    return absl::DataLossError(absl::StrCat(file_->info().path,
                                            ": the sizes of field '", spec.name,
                                            "' are not those of its header"));
  }
  return index;
}

absl::Status CachedSource::ReadNext(size_t place, absl::Span<uint8_t> data) {
  const CacheLayout::Place& at = layout_.places[place];
  Require(static_cast<int64_t>(data.size()) <=
              at.size_bytes - progress_[place].num_bytes,
          "samples are left in the cache entry");
  DATASETD_RETURN_IF_ERROR(
      ReadExactly(*file_, at.offset_bytes + progress_[place].num_bytes, data));
  return Check(place, data);
}

absl::Status CachedSource::Check(size_t place, absl::Span<const uint8_t> data) {
  Progress& progress = progress_[place];
  const int64_t size_bytes = layout_.places[place].size_bytes;
  while (!data.empty()) {
    const int64_t index = progress.num_bytes / kCacheBlockBytes;
    const int64_t end = std::min((index + 1) * kCacheBlockBytes, size_bytes);
    const size_t count = static_cast<size_t>(
        std::min(end - progress.num_bytes, static_cast<int64_t>(data.size())));
    XXH3_64bits_update(&progress.block, data.data(), count);
    progress.num_bytes += static_cast<int64_t>(count);
    data.remove_prefix(count);
    if (progress.num_bytes < end) continue;
    if (XXH3_64bits_digest(&progress.block) !=
        header_.checksums[place][static_cast<size_t>(index)]) {
      const CacheLayout::Place& at = layout_.places[place];
      return absl::DataLossError(absl::StrCat(
          file_->info().path, ": the checksum of ",
          at.is_index ? "the index of " : "", "field '",
          header_.fields[at.field].name, "', block ", index, " is wrong"));
    }
    XXH3_64bits_reset(&progress.block);
  }
  return absl::OkStatus();
}

}  // namespace datasetd
