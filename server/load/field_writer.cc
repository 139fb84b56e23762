#include "server/load/field_writer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/stage_copy.h"

namespace datasetd {
namespace {

// The most bytes behind `end_bytes` that end where a sample does, up to `room`.
int64_t WholeSamples(absl::Span<const RaggedSample> samples, int64_t end_bytes,
                     int64_t room) {
  const auto behind =
      std::upper_bound(samples.begin(), samples.end(), end_bytes + room,
                       [](int64_t place, const RaggedSample& sample) {
                         return place < sample.offset_bytes;
                       });
  if (behind == samples.begin()) return 0;
  return std::max<int64_t>(0, (behind - 1)->offset_bytes - end_bytes);
}

}  // namespace

absl::Status FieldWriter::Allocate(const Placement& placement,
                                   size_t num_fields, Backend* backend,
                                   uint32_t uid,
                                   const std::atomic<bool>& is_cancelled) {
  backend_ = backend;
  memory_.resize(num_fields);
  positions_.resize(num_fields);
  for (const Placement::Part& part : placement.parts) {
    for (size_t f = 0; f < num_fields; ++f) {
      const int64_t size_bytes = part.field_bytes[f];
      if (size_bytes == 0) continue;
      const auto allocated =
          static_cast<size_t>(SaturatingRoundUp(size_bytes, kStageAlignment));
      positions_[f].capacities.push_back(size_bytes);
      if (part.device == nullptr) {
        DATASETD_ASSIGN_OR_RETURN(
            auto memory, backend->AllocateLargeHost(allocated, is_cancelled));
        memory_[f].Add(std::move(memory));
        continue;
      }
      Backend* const owner = part.device->backend.get();
      DATASETD_ASSIGN_OR_RETURN(auto memory, owner->Allocate(allocated));
      memory_[f].Add(std::move(memory), owner);
      if (owner == backend || others_.contains(owner)) continue;
      DATASETD_ASSIGN_OR_RETURN(
          others_[owner].stream,
          owner->CreateStream(nullptr, {.uid = uid, .is_background = true}));
    }
  }
  return absl::OkStatus();
}

absl::Status FieldWriter::Append(size_t field, absl::Span<const uint8_t> bytes,
                                 absl::Span<const RaggedSample> samples,
                                 Stream& own) {
  FieldMemory& memory = memory_[field];
  Position& position = positions_[field];
  while (!bytes.empty()) {
    if (position.extent == position.capacities.size()) {
      return absl::InternalError(
          absl::StrCat("field ", field, ": ", bytes.size(),
                       " bytes are left over, and its memory is full"));
    }
    const Extent& extent = memory.extents()[position.extent];
    const int64_t room = position.capacities[position.extent] -
                         (position.end_bytes - extent.offset_bytes);
    auto part = static_cast<int64_t>(bytes.size());
    if (part > room) {
      part = samples.empty() ? room
                             : WholeSamples(samples, position.end_bytes, room);
    }
    const bool is_last = part == static_cast<int64_t>(bytes.size());
    DATASETD_RETURN_IF_ERROR(
        Copy(extent, bytes.subspan(0, static_cast<size_t>(part)), own));
    position.end_bytes += part;
    memory.EndExtent(position.extent, position.end_bytes);
    bytes.remove_prefix(static_cast<size_t>(part));
    if (!is_last) ++position.extent;
  }
  return absl::OkStatus();
}

absl::Status FieldWriter::Copy(const Extent& extent,
                               absl::Span<const uint8_t> bytes, Stream& own) {
  uint8_t* const to = extent.data + (extent.end_bytes - extent.offset_bytes);
  if (bytes.empty()) return absl::OkStatus();
  if (extent.backend == nullptr) {
    std::memcpy(to, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  if (extent.backend == backend_) {
    return own.CopyToDevice(to, bytes.data(), bytes.size());
  }
  Device& other = others_.at(extent.backend);
  other.is_busy = true;
  return other.stream->CopyToDevice(to, bytes.data(), bytes.size());
}

absl::Status FieldWriter::Await() {
  for (auto& [backend, other] : others_) {
    if (!other.is_busy) continue;
    DATASETD_RETURN_IF_ERROR(other.stream->Synchronize());
    other.is_busy = false;
  }
  return absl::OkStatus();
}

}  // namespace datasetd
