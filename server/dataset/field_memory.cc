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

absl::Status FieldReader::Read(const FieldMemory& memory, int64_t offset_bytes,
                               int64_t size_bytes, uint8_t* to) {
  while (size_bytes > 0) {
    const Extent& extent = memory.At(offset_bytes);
    const int64_t part = std::min(size_bytes, extent.end_bytes - offset_bytes);
    const uint8_t* const from =
        extent.data + (offset_bytes - extent.offset_bytes);
    if (extent.backend == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(part));
    } else {
      DATASETD_ASSIGN_OR_RETURN(Stream* const stream,
                                StreamOf(*extent.backend));
      DATASETD_RETURN_IF_ERROR(
          stream->CopyToHost(to, from, static_cast<size_t>(part)));
      DATASETD_RETURN_IF_ERROR(stream->Synchronize());
    }
    offset_bytes += part;
    size_bytes -= part;
    to += part;
  }
  return absl::OkStatus();
}

}  // namespace datasetd
