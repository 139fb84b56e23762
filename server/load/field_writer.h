// Writes the samples of a load to memory of its own that is not, as a whole,
// one device's: to each part of the placement in turn, by whole samples.
//
// Not thread-safe.

#ifndef DATASETD_SERVER_LOAD_FIELD_WRITER_H_
#define DATASETD_SERVER_LOAD_FIELD_WRITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_memory.h"
#include "server/load/placement.h"

namespace datasetd {

class FieldWriter {
 public:
  // `backend` is that of the device that loads, and allocates host memory.
  // REQUIRES: !placement.is_whole(). Errors of allocation; CANCELLED once
  // `is_cancelled` is set.
  absl::Status Allocate(const Placement& placement, size_t num_fields,
                        Backend* backend, uint32_t uid,
                        const std::atomic<bool>& is_cancelled);

  // Appends samples, which stay unchanged until the copies are done: those to
  // the device that loads are enqueued on `own`, those to others on streams
  // that Await waits for. `samples` are those of a packed field.
  absl::Status Append(size_t field, absl::Span<const uint8_t> bytes,
                      absl::Span<const RaggedSample> samples, Stream& own);
  absl::Status Await();

  std::vector<FieldMemory> TakeMemory() { return std::move(memory_); }

 private:
  struct Position {
    std::vector<int64_t> capacities;  // of the extents
    size_t extent = 0;
    int64_t end_bytes = 0;  // written so far
  };
  struct Device {
    std::unique_ptr<Stream> stream;
    bool is_busy = false;
  };

  absl::Status Copy(const Extent& extent, absl::Span<const uint8_t> bytes,
                    Stream& own);

  Backend* backend_ = nullptr;
  std::vector<FieldMemory> memory_;
  std::vector<Position> positions_;
  // The devices but the one that loads. Declared last: they wait for their
  // copies first.
  std::map<Backend*, Device> others_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_FIELD_WRITER_H_
