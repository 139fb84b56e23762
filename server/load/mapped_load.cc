#include "server/load/mapped_load.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/require.h"
#include "base/status_macros.h"
#include "server/dataset/ragged_index.h"
#include "server/load/load_request.h"

namespace datasetd {
namespace {

class MappedMemory final : public DeviceMemory {
 public:
  MappedMemory(std::shared_ptr<const MappedEntry> entry, size_t field)
      : entry_(std::move(entry)), bytes_(entry_->place(field)) {}
  uint8_t* data() const override { return bytes_.data(); }
  size_t size_bytes() const override { return bytes_.size(); }

 private:
  const std::shared_ptr<const MappedEntry> entry_;
  const absl::Span<uint8_t> bytes_;
};

void MapFields(const std::shared_ptr<const MappedEntry>& entry,
               Dataset::Contents& contents) {
  contents.memory.clear();
  for (size_t f = 0; f < contents.fields.size(); ++f) {
    contents.memory.emplace_back(std::make_unique<MappedMemory>(entry, f));
  }
  contents.file = std::shared_ptr<const MappedFile>(entry, &entry->file());
}

}  // namespace

MappedStore::MappedStore(DatasetCache* cache, const LoadPlan& plan,
                         int64_t num_samples, std::string name,
                         CacheHeader header, const LoadCounters* counters)
    : cache_(cache),
      name_(std::move(name)),
      counters_(counters),
      header_(std::move(header)) {
  header_.num_samples = num_samples;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    FieldSpec& spec = header_.fields.emplace_back(field.resident);
    if (!spec.is_packed()) continue;
    // Before the load only the bytes of a packed field are known, no extents.
    spec.smallest = spec.largest = {1, 1};
    spec.num_pixels = 1;
  }
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> MappedStore::Allocate(
    size_t field, int64_t size_bytes) {
  if (entry_ == nullptr) {
    DATASETD_ASSIGN_OR_RETURN(entry_, cache_->Begin(header_));
  }
  auto memory = std::make_unique<MappedMemory>(entry_, field);
  Require(static_cast<int64_t>(memory->size_bytes()) == size_bytes,
          "a field has the size in the cache that the load planned");
  return memory;
}

absl::Status MappedStore::status() const {
  return entry_ == nullptr ? absl::OkStatus() : entry_->file().status();
}

absl::Status MappedStore::Finish(Dataset::Contents& contents) {
  if (header_.spec_id.empty()) {
    header_.spec_id = PushedSpecId(name_, contents.content_hash,
                                   header_.owner_uid.value_or(0));
  }
  header_.content_hash = contents.content_hash;
  header_.num_samples = contents.num_samples;
  header_.fields = contents.fields;
  header_.bad_samples = contents.bad_samples;
  header_.notes = contents.notes;
  size_t place = contents.fields.size();
  for (const Dataset::Contents::Packed& packed : contents.packed) {
    if (!packed.index.has_value()) continue;
    const absl::Span<const RaggedSample> samples = packed.index->samples();
    std::memcpy(entry_->place(place).data(), samples.data(),
                samples.size() * sizeof(RaggedSample));
    ++place;
  }
  contents.memory.clear();
  DATASETD_ASSIGN_OR_RETURN(entry_, cache_->Finish(std::move(entry_), header_,
                                                   counters_->is_cancelled));
  MapFields(entry_, contents);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> MapDataset(
    const std::string& name, CachedSource& source, DatasetCache& cache,
    Backend* backend, PlacedMemory&& memory, LoadCounters& counters) {
  const CacheHeader& header = source.header();
  Dataset::Contents contents;
  contents.name = name;
  contents.backend = backend;
  contents.num_samples = header.num_samples;
  contents.fields = header.fields;
  contents.content_hash = header.content_hash;
  contents.bad_samples = source.info().bad_samples;
  contents.notes = source.info().notes;
  contents.packed.resize(header.fields.size());
  for (size_t f = 0; f < header.fields.size(); ++f) {
    if (!header.fields[f].is_packed()) continue;
    Dataset::Contents::Packed& packed = contents.packed[f];
    DATASETD_ASSIGN_OR_RETURN(packed.index, source.ReadIndex(f));
    const int64_t bytes = packed.index->index_bytes();
    DATASETD_ASSIGN_OR_RETURN(packed.memory, backend->Allocate(bytes));
    std::memcpy(packed.memory->data(), packed.index->samples().data(),
                static_cast<size_t>(bytes));
  }
  DATASETD_ASSIGN_OR_RETURN(
      const std::shared_ptr<const MappedEntry> entry,
      cache.Map(header.spec_id, header.content_hash, counters.is_cancelled));
  MapFields(entry, contents);
  counters.num_samples.store(header.num_samples, std::memory_order_relaxed);
  counters.num_bytes.store(source.size_bytes(), std::memory_order_relaxed);
  contents.reservations = std::move(memory.reservations);
  return std::make_shared<const Dataset>(std::move(contents));
}

}  // namespace datasetd
