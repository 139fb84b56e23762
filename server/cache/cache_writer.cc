#include "server/cache/cache_writer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "server/dataset/field_memory.h"

namespace datasetd {
namespace {

absl::Status Write(CacheHeader& header, const CacheLayout& layout,
                   const std::weak_ptr<const Dataset>& dataset,
                   Backend& backend, WritableFile& file,
                   const CacheWriteOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(const std::unique_ptr<HostMemory> buffer,
                            backend.AllocateHost(kCacheBlockBytes));
  std::optional<FieldReader> reader;
  // Copies one block into the buffer. ABORTED if it was interrupted.
  const auto try_fetch = [&](const CacheLayout::Place& place, int64_t offset,
                             int64_t size) -> absl::Status {
    if (!reader.has_value()) {
      reader.emplace(StreamOptions{.is_background = true});
    }
    // Streams of other devices cannot be cancelled.
    DATASETD_ASSIGN_OR_RETURN(Stream* const stream, reader->StreamOf(backend));
    const CopyGate::Pass pass(options.gate, stream);
    const std::shared_ptr<const Dataset> source = dataset.lock();
    if (source == nullptr) {
      return absl::CancelledError("the dataset was taken out of memory");
    }
    if (place.is_index) {
      const auto* const index = reinterpret_cast<const uint8_t*>(
          source->field_index(place.field)->samples().data());
      std::memcpy(buffer->data(), index + offset, static_cast<size_t>(size));
      return absl::OkStatus();
    }
    const absl::Status read = reader->Read(source->field_memory(place.field),
                                           offset, size, buffer->data());
    return absl::IsCancelled(read) ? absl::AbortedError("interrupted") : read;
  };
  const auto fetch = [&](const CacheLayout::Place& place, int64_t offset,
                         int64_t size) -> absl::Status {
    while (true) {
      if (options.is_stopping->load(std::memory_order_relaxed)) {
        return absl::CancelledError("the daemon is shutting down");
      }
      const absl::Status status = try_fetch(place, offset, size);
      if (!absl::IsAborted(status)) return status;
      reader.reset();  // a cancelled stream cannot be used again
    }
  };

  header.checksums.clear();
  for (const CacheLayout::Place& place : layout.places) {
    std::vector<uint64_t>& blocks = header.checksums.emplace_back();
    for (int64_t offset = 0; offset < place.size_bytes;
         offset += kCacheBlockBytes) {
      const int64_t size =
          std::min(kCacheBlockBytes, place.size_bytes - offset);
      DATASETD_RETURN_IF_ERROR(fetch(place, offset, size));
      const absl::Span<const uint8_t> block(buffer->data(),
                                            static_cast<size_t>(size));
      blocks.push_back(CacheChecksum(block));
      DATASETD_RETURN_IF_ERROR(
          file.WriteAt(place.offset_bytes + offset, block));
    }
  }
  const std::string text = EncodeCacheHeader(header);
  DATASETD_RETURN_IF_ERROR(file.WriteAt(
      0, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size())));
  return file.Sync();
}

}  // namespace

absl::Status WriteCacheEntry(CacheHeader header, const CacheLayout& layout,
                             const std::weak_ptr<const Dataset>& dataset,
                             Backend& backend, StoreDirectory& directory,
                             const std::string& name,
                             const CacheWriteOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                            directory.Create(name));
  const absl::Status status =
      Write(header, layout, dataset, backend, *file, options);
  file.reset();
  if (!status.ok()) directory.Remove(name).IgnoreError();
  return status;
}

}  // namespace datasetd
