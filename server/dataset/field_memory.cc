#include "server/dataset/field_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace datasetd {

FieldMemory::FieldMemory(std::unique_ptr<DeviceMemory> memory) {
  const auto size_bytes = static_cast<int64_t>(memory->size_bytes());
  Add(std::move(memory), nullptr);
  EndExtent(0, size_bytes);
}

void FieldMemory::Add(std::unique_ptr<DeviceMemory> memory, Backend* backend) {
  extents_.push_back({.data = memory->data(), .backend = backend});
  device_.push_back(std::move(memory));
}

void FieldMemory::Add(std::unique_ptr<HostMemory> memory) {
  extents_.push_back({.data = memory->data()});
  host_.push_back(std::move(memory));
}

void FieldMemory::EndExtent(size_t extent, int64_t end_bytes) {
  extents_[extent].end_bytes = end_bytes;
  for (size_t i = extent + 1; i < extents_.size(); ++i) {
    extents_[i].offset_bytes = extents_[i].end_bytes = end_bytes;
  }
}

void FieldMemory::SetBackend(Backend* backend) {
  if (device_.size() == 1 && extents_.size() == 1) {
    extents_[0].backend = backend;
  }
}

const Extent& FieldMemory::At(int64_t offset_bytes) const {
  size_t i = 0;
  while (i + 1 < extents_.size() && extents_[i].end_bytes <= offset_bytes) ++i;
  return extents_[i];
}

absl::StatusOr<Stream*> FieldReader::StreamOf(Backend& backend) {
  std::unique_ptr<Stream>& stream = streams_[&backend];
  if (stream == nullptr) {
    DATASETD_ASSIGN_OR_RETURN(stream, backend.CreateStream(nullptr, options_));
  }
  return stream.get();
}

absl::Status FieldReader::Begin(const FieldMemory& memory, int64_t offset_bytes,
                                int64_t size_bytes, uint8_t* to) {
  while (size_bytes > 0) {
    const Extent& extent = memory.At(offset_bytes);
    const int64_t part = std::min(size_bytes, extent.end_bytes - offset_bytes);
    DATASETD_RETURN_IF_ERROR(
        Begin(extent.backend,
              extent.data + (offset_bytes - extent.offset_bytes), part, to));
    offset_bytes += part;
    size_bytes -= part;
    to += part;
  }
  return absl::OkStatus();
}

absl::Status FieldReader::Begin(Backend* backend, const uint8_t* from,
                                int64_t size_bytes, uint8_t* to) {
  if (backend == nullptr) {
    std::memcpy(to, from, static_cast<size_t>(size_bytes));
    return absl::OkStatus();
  }
  DATASETD_ASSIGN_OR_RETURN(Stream* const stream, StreamOf(*backend));
  return stream->CopyToHost(to, from, static_cast<size_t>(size_bytes));
}

absl::Status FieldReader::Await() {
  absl::Status first;
  for (const auto& [backend, stream] : streams_) {
    first.Update(stream->Synchronize());
  }
  return first;
}

absl::Status FieldReader::Read(const FieldMemory& memory, int64_t offset_bytes,
                               int64_t size_bytes, uint8_t* to) {
  absl::Status begun = Begin(memory, offset_bytes, size_bytes, to);
  begun.Update(Await());
  return begun;
}

}  // namespace datasetd
