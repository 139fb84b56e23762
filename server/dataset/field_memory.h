// Where the samples of one field lie: in one memory, or in extents of whole
// samples, one after the other, each in the memory of a device or in pinned
// host memory.
//
// Places are counted in bytes of the field: sample i of a field that is not
// packed begins at i times the sample's size, one of a packed field where its
// index says. Movable; thread-safe while it is not changed.

#ifndef DATASETD_SERVER_DATASET_FIELD_MEMORY_H_
#define DATASETD_SERVER_DATASET_FIELD_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"

namespace datasetd {

struct Extent {
  // The bytes of the field [offset_bytes, end_bytes).
  int64_t offset_bytes = 0;
  int64_t end_bytes = 0;
  uint8_t* data = nullptr;  // of the first of them
  // Whose memory it is; null: pinned host memory.
  Backend* backend = nullptr;
};

class FieldMemory {
 public:
  FieldMemory() = default;
  // All of the field, in one memory of the dataset's device.
  FieldMemory(std::unique_ptr<DeviceMemory> memory);  // NOLINT

  // Appends an extent without bytes so far.
  void Add(std::unique_ptr<DeviceMemory> memory, Backend* backend);
  void Add(std::unique_ptr<HostMemory> memory);
  // Says that the extent holds the bytes up to `end_bytes` of the field, and
  // the ones behind it those from there on.
  void EndExtent(size_t extent, int64_t end_bytes);
  // Names the device of memory that was given to the constructor.
  void SetBackend(Backend* backend);

  const std::vector<Extent>& extents() const { return extents_; }
  // True if all lies in one memory of that device.
  bool IsWholeOn(const Backend& backend) const {
    return extents_.size() == 1 && extents_[0].backend == &backend;
  }
  // The first byte; null if there are several extents, or none, or it is host
  // memory.
  uint8_t* data() const {
    return extents_.size() == 1 && device_.size() == 1 ? extents_[0].data
                                                       : nullptr;
  }
  // The extent that holds the byte. REQUIRES: there is one.
  const Extent& At(int64_t offset_bytes) const;

 private:
  std::vector<Extent> extents_;
  std::vector<std::unique_ptr<DeviceMemory>> device_;
  std::vector<std::unique_ptr<HostMemory>> host_;
};

// Copies parts of fields to the host, each on a stream of the device that has
// them. Not thread-safe.
class FieldReader {
 public:
  explicit FieldReader(const StreamOptions& options) : options_(options) {}

  // The stream for extents of that device.
  absl::StatusOr<Stream*> StreamOf(Backend& backend);

  // Begins to copy [offset_bytes, offset_bytes + size_bytes) to `to`, host
  // memory of the dataset's backend. Errors of the device.
  absl::Status Begin(const FieldMemory& memory, int64_t offset_bytes,
                     int64_t size_bytes, uint8_t* to);
  // The same of memory of `backend`; null: of the host.
  absl::Status Begin(Backend* backend, const uint8_t* from, int64_t size_bytes,
                     uint8_t* to);
  // Waits for all copies. REQUIRES: called before 1000 have begun.
  absl::Status Await();
  // Begins a copy, and waits.
  absl::Status Read(const FieldMemory& memory, int64_t offset_bytes,
                    int64_t size_bytes, uint8_t* to);

 private:
  const StreamOptions options_;
  std::map<Backend*, std::unique_ptr<Stream>> streams_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_FIELD_MEMORY_H_
